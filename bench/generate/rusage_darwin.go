package main

// maxrssUnit is the unit of Maxrss in bytes.
const maxrssUnit = 1
