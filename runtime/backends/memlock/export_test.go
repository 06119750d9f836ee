package memlock

// Records returns how many keys b keeps a record of.
func (b *Backend) Records() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.keys)
}
