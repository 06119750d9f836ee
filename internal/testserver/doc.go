// Package testserver starts real servers for tests, on free ports and in temporary
// folders. They are ready within milliseconds, and end with the tests.
//
// There are two ways to use it. The command internal/testserver/cmd wraps a whole test
// run and exports the addresses, so all packages share one server of each kind:
//
//	go run ./internal/testserver/cmd exec -only redis -- go test ./...
//
// A test asks for a server by [Redis] (shared, use keys of your own) or
// [StartRedis] (private, may be stopped, killed and restarted). Without the
// wrapper Redis starts a server for as long as some test needs one, so that a
// plain `go test` works as well.
//
// [StartSentinel] (a Redis, two replicas, three sentinels) and [StartCluster] (three
// masters with a replica each) are private too. They are for tests in which a primary is
// replaced or a slot moves. Their servers start with the configuration files that they
// would have written after they had met, so tests need not wait for that.
//
// If a server is missing, the test is skipped with the command that installs it. With
// CI=true, or if LOCKGEN_TEST_REQUIRE names the server or "all", the test fails instead,
// because a skipped test is easily mistaken for one that passed.
//
// To add an engine, write one file with a [Server] and list it in [Servers].
package testserver
