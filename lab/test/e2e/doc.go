// Package e2e holds the tests that look at Atoll as its users do: a lab of a real
// hub and three real members, built binaries, and the Kubernetes API.
//
// Contract: the tests need the built binaries in ATOLL_BIN_DIR and fail without
// them. Without -run they are taken apart (parts_test.go): a few processes side by
// side, each with a lab of its own. The tests of one process share its lab; each uses
// namespaces of its own and leaves every component running and every link whole.
package e2e
