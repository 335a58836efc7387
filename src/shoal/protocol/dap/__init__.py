"""The Distributed Aggregation Protocol, draft-ietf-ppm-dap-18: messages, and the task of a plan."""
