"""Keeping and delivering OpenTelemetry data: segments, sender, transports, blob store.

Knows OpenTelemetry and the disk, nothing of trainers.
"""
