module asked

go 1.21
