module shoal

go 1.19
