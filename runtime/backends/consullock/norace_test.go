//go:build !race

package consullock

const raceDetector = false
