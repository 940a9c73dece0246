module webd

go 1.22
