module example.com/seeded

go 1.26.0

require github.com/lockgen/lockgen v0.0.0

replace github.com/lockgen/lockgen => ../../..
