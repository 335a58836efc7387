"""Experiments, retention and funnels: questions that devices answer from their own past."""

from __future__ import annotations

from shoal.errors import missing_extra

try:
    from shoal.analysis.experiments import Experiment, Monitoring, experiment, monitor
    from shoal.analysis.funnels import FunnelResult, funnel
    from shoal.analysis.power import (
        DetectableEffect,
        Detection,
        detectable_effect,
        people_to_detect,
    )
    from shoal.analysis.retention import RetentionCurve, retention
    from shoal.protocol.experiments import Arm, Funnel, Retention, RetentionOnce
except ModuleNotFoundError as error:
    raise missing_extra(error, "shoal.experiments") from None

__all__ = [
    "Arm",
    "DetectableEffect",
    "Detection",
    "Experiment",
    "Funnel",
    "FunnelResult",
    "Monitoring",
    "Retention",
    "RetentionCurve",
    "RetentionOnce",
    "detectable_effect",
    "experiment",
    "funnel",
    "monitor",
    "people_to_detect",
    "retention",
]
