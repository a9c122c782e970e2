"""What runs are made with: the job, its executor, Spark, progress, failures."""
