"""What people see: what lies below a target's root, as any account may read it. Changes nothing."""
