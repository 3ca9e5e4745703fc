package e2e

import (
	"os"
	"slices"
)

// promisesVariable makes a process run only the tests of promiseTests.
const promisesVariable = "ATOLL_E2E_PROMISES"

// promiseTests are the end-to-end tests of `make test`: one for each promise of the product.
// CONTRIBUTING.md lists the promises. `make test-all` runs every test.
var promiseTests = []string{
	"TestApplyReachesEveryMemberAndReportsBack",
	"TestRolloutStatusEndsWhenTheMembersHaveDone",
	"TestNothingIsLostAndNothingComesBack",
	"TestDeletingWhileAwayEndsWithTheNewObject",
	"TestARemovalOverItsBudgetWaitsForItsPlan",
	"TestTheFleetIsSeenAsOneCluster",
	"TestAMemberIsReachedThroughTheHub",
	"TestSwitchingBetweenPullAndPush",
	"TestARestoredHubIsTrusted",
	"TestKubectlWritesInEveryWay",
	"TestSourceBringsCommitsToMembers",
}

// chosenParts returns the parts that this process starts: all of them, or with promisesVariable
// those with a promise, with the tests of promises alone.
func chosenParts() []testPart {
	if os.Getenv(promisesVariable) == "" {
		return testParts
	}
	var chosen []testPart
	unnamed := slices.Clone(promiseTests)
	for _, p := range testParts {
		p.tests = slices.DeleteFunc(slices.Clone(p.tests), func(name string) bool { return !slices.Contains(promiseTests, name) })
		unnamed = slices.DeleteFunc(unnamed, func(name string) bool { return slices.Contains(p.tests, name) })
		if len(p.tests) > 0 {
			chosen = append(chosen, p)
		}
	}
	return append(chosen, testPart{name: "others", tests: unnamed})
}
