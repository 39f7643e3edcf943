"""The published contracts: JSON Schemas for the remit, the launch plan, the launcher's events and the receipt."""
