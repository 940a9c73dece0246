"""What an administrator says about a root and its datasets: who may do what, and when all of it rests."""
