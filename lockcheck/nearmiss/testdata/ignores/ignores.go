package ignores

func a() {
	_ = 1 //lockcheck:ignore bypass the caller holds the lock
	_ = 2 //lockcheck:ignored is another word
}
