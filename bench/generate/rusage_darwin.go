package main

// maxrssUnit is what the system counts Maxrss in, in bytes.
const maxrssUnit = 1
