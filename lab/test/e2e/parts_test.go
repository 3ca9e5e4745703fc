package e2e

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// partVariable names the part that a process runs.
const partVariable = "ATOLL_E2E_PART"

const (
	// partsAtOnce is how many parts run side by side. Tests wait far more than they
	// work; more than two cores can do at once would make the waits longer again.
	partsAtOnce = 3
	// testsAtOnce is how many of the tests that may run beside each other do.
	testsAtOnce = 4
)

// testPart is a number of tests that run in a process of their own.
type testPart struct {
	name  string
	tests []string
	noLab bool // the tests start what they need
	// realNodes run containers, where the machine can.
	realNodes bool
}

// testParts divide all tests. Tests that hurt a component, or need quiet, have labs of
// their own, one after the other. The rest is one more part, with a lab too. They start in
// this order: the longest first, so that none runs alone at the end. With -v, each prints
// its duration.
var testParts = []testPart{
	{name: "others"},
	{name: "faults", tests: []string{
		"TestNothingIsLostAndNothingComesBack", "TestReadyFollowsTheLink", "TestRolloutStatusWithAClusterAway",
		"TestAKilledAgentWorksAtOnce", "TestTheAgentsStateIsDeletedByHand", "TestASecondAgentWaitsForTheFirst",
		"TestDeletingWhileAwayEndsWithTheNewObject", "TestMembersHealThemselvesWithoutTheHub", "TestADisconnectedMemberIsReported",
		"TestAMemberIsJoinedByPush", "TestSwitchingBetweenPullAndPush", "TestAMemberThatHangsDelaysNoOther",
		"TestADisconnectedClusterIsNamedAsMissing", "TestNewWorkAvoidsDisconnectedCluster", "TestOldCopiesEndFirst",
		"TestALostClusterIsReplaced", "TestWavesInsideACluster", "TestHooksInsideACluster", "TestHooksOfARemoval", "TestAMemberGetsTheVersionThatItServes",
	}},
	{name: "own", noLab: true, tests: []string{"TestAChangeIsOneTrace", "TestPlacementByDefault", "TestAnInstallationWorksInAnyOrder"}},
	{name: "hubs", noLab: true, tests: []string{
		"TestAStaleLeaderAndItsGatewayWriteNothing", "TestHubsAreLost", "TestOneKindThatCannotBeListed", "TestOperatorsFlags",
		"TestCredentialsTakeCareOfThemselves", "TestHubsShareTheMembersThatTheyPushTo",
		"TestTheLeadingHubIsKilledWhileClustersLeave",
		"TestMembersBehindAnHTTPProxy", "TestAFullStoreChangesNoMember",
		"TestTheHubIsKilledInEveryPhase", "TestANewLeaderIsKilledAtOnce", "TestHubsTakeTheCodesOfEachOther", "TestAHubWithOpenWatchesIsStoppedAndKilled",
	}},
	{name: "containers", realNodes: true, tests: []string{
		"TestContainersOfTheFleet", "TestContainersThroughTheHub", "TestATerminalThroughTheHub", "TestTheAgentIsKilledDuringExec",
		"TestTheLinkIsCutDuringACopy", "TestTheHubIsKilledDuringLogsAndWatches", "TestLogsAndExecInAllClusters",
		"TestUpstreamsMetricsServer",
	}},
	{name: "restores", tests: []string{
		"TestWriteBudgets", "TestManyObjectsOfOnePolicy",
		"TestARestoredHubIsTrusted", "TestARestoredHubTrustsItsMembers",
		"TestAStoreRestoredWithABumpedRevision", "TestTheHubRestartsWhileMembersAreAway",
		// It gives 2,000 rows up at its end, and the Events of that crowd out others'.
		"TestMassDeletesAreHeldPerNamespace",
	}},
	// Other Bundles that are placed everywhere would have to find another place first.
	{name: "leaving", tests: []string{
		"TestAClusterIsOrphanedAndComesBackUnderAnotherName", "TestAClusterIsCleaned", "TestADeadClusterIsGivenUpAndComesBack",
		"TestARemovalIsTakenBack", "TestClustersThatCheckInLeave", "TestAMemberGoesOnToAnotherHub", "TestClustersAreInTheInventory",
		"TestAProgramReachesAMemberByItsProfile", "TestADrainedClusterIsEvacuated", "TestADisruptionBudgetKeepsACopy",
		// It waits for the hub to have nothing to do.
		"TestAThousandFollowers",
		// For minutes one of the members is there now and then only.
		"TestAClusterThatChecksIn",
	}},
}

// testFlags are the flags with which the part's process runs its tests, and no others.
func (p testPart) testFlags() []string {
	choose := "-test.run="
	tests := p.tests
	if len(tests) == 0 {
		choose = "-test.skip="
		for _, other := range testParts {
			tests = append(tests, other.tests...)
		}
	}
	// The cache output of `go test` belongs to one process.
	flags := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(arg string) bool { return strings.HasPrefix(arg, "-test.testlogfile") })
	flags = append(flags, choose+"^("+strings.Join(tests, "|")+")$")
	if p.noLab {
		flags = append(flags, "-test.parallel=1") // each starts several hubs
	}
	return flags
}

// wantsParts reports whether this process divides the tests: no flag selects tests or a
// lab.
func wantsParts() bool {
	return os.Getenv(partVariable) == "" && os.Getenv(labVariable) == "" && flagOf("test.run") == "" && flagOf("test.skip") == ""
}

func flagOf(name string) string { return flag.Lookup(name).Value.String() }

// atOnce allows more parallel tests than processors, unless the command line sets the
// number.
func atOnce() error {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	return flag.Set("test.parallel", strconv.Itoa(testsAtOnce))
}

// runParts runs all tests, part by part, and prints the output of each part at its end. The
// result is for os.Exit.
func runParts() int {
	if err := knownTests(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var mu sync.Mutex
	var running sync.WaitGroup
	code, places := 0, make(chan struct{}, partsAtOnce)
	for _, p := range chosenParts() {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			cmd := exec.Command(os.Args[0], p.testFlags()...)
			cmd.Env = append(os.Environ(), partVariable+"="+p.name)
			endWithTest(cmd)
			begin := time.Now()
			out, err := cmd.CombinedOutput()
			out = fmt.Appendf(out, "part %q took %s\n", p.name, time.Since(begin).Round(time.Second))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				code = 1
				out = fmt.Appendf(out, "part %q of the tests: %v\n", p.name, err)
			}
			_, _ = os.Stdout.Write(out) // there is no other place to report it
		})
	}
	running.Wait()
	return code
}

// endWithTest makes the kernel kill the command when this process ends in any way.
func endWithTest(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

// knownTests checks that every test that a part names is there.
func knownTests() error {
	out, err := exec.Command(os.Args[0], "-test.list=.").Output()
	if err != nil {
		return fmt.Errorf("list the tests: %w", err)
	}
	listed := map[string]bool{}
	for line := range bytes.Lines(out) {
		listed[strings.TrimSpace(string(line))] = true
	}
	var errs []error
	for _, p := range chosenParts() {
		for _, name := range p.tests {
			if !listed[name] {
				errs = append(errs, fmt.Errorf("part %q names %s, and there is no such test", p.name, name))
			}
		}
	}
	return errors.Join(errs...)
}

// ownPart returns the part that this process runs: the part that partVariable names, or else the
// part that names every test that -test.run chooses, so that a test runs alone in the lab that it needs.
func ownPart() testPart {
	for _, p := range testParts {
		if name := os.Getenv(partVariable); name != "" && p.name == name || name == "" && p.namesAll(chosenTests()) {
			return p
		}
	}
	return testPart{}
}

// namesAll reports whether the part names all these tests, and there is one.
func (p testPart) namesAll(tests []string) bool {
	return len(tests) > 0 && !slices.ContainsFunc(tests, func(name string) bool { return !slices.Contains(p.tests, name) })
}

// chosenTests returns the names in -test.run, which is of the form TestA, ^TestA$, ^(TestA|TestB)$ or
// ^TestA$/^subtest$. For any other form it returns names that no part has.
func chosenTests() []string {
	run, _, _ := strings.Cut(flagOf("test.run"), "/")
	run = strings.TrimSuffix(strings.TrimPrefix(run, "^"), "$")
	run = strings.TrimSuffix(strings.TrimPrefix(run, "("), ")")
	if run == "" {
		return nil
	}
	return strings.Split(run, "|")
}
