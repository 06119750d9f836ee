// Package testserver starts real servers for tests: on free ports, in temporary
// folders, ready within milliseconds, and gone when the tests are.
//
// There are two ways in. The command internal/testserver/cmd wraps a whole test
// run and exports the addresses, so that all packages share one server of each
// kind:
//
//	go run ./internal/testserver/cmd exec -only redis -- go test ./...
//
// A test asks for a server by [Redis] (shared, use keys of your own) or
// [StartRedis] (private, may be stopped, killed and restarted). Without the
// wrapper Redis starts a server for as long as some test needs one, so that a
// plain `go test` works as well.
//
// What happens when a primary is replaced or a slot moves is seen with
// [StartSentinel] (a Redis, two replicas, three sentinels) and [StartCluster] (three
// masters with a replica each), private too. They are told of each other in the
// files that they would have written in time, so that tests need not wait for them
// to meet.
//
// A missing server makes a test skip with the line that installs it. With
// CI=true, or LOCKGEN_TEST_REQUIRE naming the server or "all", it fails instead:
// a test that skips in silence would look like one that passed.
//
// To add an engine write one file with a [Server] and list it in [Servers].
package testserver
