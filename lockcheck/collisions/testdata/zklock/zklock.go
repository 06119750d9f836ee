// Package zklock stands in for a backend.
package zklock
