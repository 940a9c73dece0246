module s3d

go 1.19
