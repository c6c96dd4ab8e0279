module example.org/spinney

go 1.19
