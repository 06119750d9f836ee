//go:build race

package consullock

const raceDetector = true
