// Package integration tests the real binary: processes that are killed, stores that fail, clients of every kind.
//
// Clients record what was acknowledged and read, and package history compares that with what the streams hold in the end. TestChaos mixes faults
// of every kind (make chaos runs it for long). TestBrokenBuildsAreNoticed shows that the comparison notices: it plays the same scenarios on a build that leaves out
// one rule, which only the build tag varve_broken makes possible.
//
// Variables: VARVE_TEST_BINARY names a binary to test instead of one that is built, VARVE_TEST_SEED replays a seed, VARVE_TEST_ROUNDS says how many faults
// are put, VARVE_TEST_LONG makes faults last longer and plays every variant.
package integration
