"""Tests of Shoal, one file per module; README.md says where a new one goes."""
