"""Workflows: work of several agents, stage by stage, with one result."""
