package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/lab/process"
	"atoll.dev/atoll/lab/relay"
)

// upFake brings a lab of stand-ins up; it is ended after the test.
func upFake(t *testing.T, o Options) *Lab {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	o.Binaries = fakeBinaries(t)
	t.Cleanup(func() {
		dir, err := canonicalDir(o.Dir)
		if err == nil {
			err = (&Lab{dir: dir, progress: t.Output()}).StopAll(context.Background())
		}
		if err != nil {
			t.Error(err)
		}
	})
	l, err := BringUp(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// statusOf finds one component's status.
func statusOf(t *testing.T, l *Lab, name string) ComponentStatus {
	t.Helper()
	status, err := l.ReadStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range status.Components {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no component %s in %+v", name, status)
	return ComponentStatus{}
}

// waitForStatus waits until the component's status pleases.
func waitForStatus(t *testing.T, l *Lab, name string, pleases func(ComponentStatus) bool) {
	t.Helper()
	testwait.Until(t, name, func(context.Context) (bool, string) {
		last := statusOf(t, l, name)
		return pleases(last), fmt.Sprintf("%+v", last)
	})
}

func isReady(c ComponentStatus) bool  { return c.Ready }
func notReady(c ComponentStatus) bool { return !c.Ready }

func failOnError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestUpJoinsAllMembers(t *testing.T) {
	t.Parallel()
	l := upFake(t, Options{Members: 3, Regions: []string{"eu", "us"}})
	status, err := l.ReadStatus(t.Context())
	failOnError(t, err)
	if len(status.Components) != 8 {
		t.Fatalf("%d components; want hub, relay, 3 members and 3 agents", len(status.Components))
	}
	for _, c := range status.Components {
		if c.State != process.Running || !c.Ready {
			t.Errorf("%+v; want it running and ready", c)
		}
	}
	for _, name := range []string{"hub", "member1", "member3"} {
		if _, err := os.Stat(l.KubeconfigPath(name)); err != nil {
			t.Error(err)
		}
	}
	clusters, err := newHubClustersClient(l.KubeconfigPath("hub"))
	failOnError(t, err)
	third, err := clusters.Get(t.Context(), "member3", metav1.GetOptions{})
	failOnError(t, err)
	if got, _ := json.Marshal(third.Object["spec"]); string(got) != `{"region":"eu"}` {
		t.Errorf("spec of member3 is %s; regions go round", got)
	}
}

func TestKilledComponentsComeBackOnTheirPorts(t *testing.T) {
	t.Parallel()
	l := upFake(t, Options{Members: 1})
	for _, name := range []string{"agent/member1", "member1", "hub", "relay"} {
		before := statusOf(t, l, name)
		failOnError(t, l.KillComponent(t.Context(), name))
		if got := statusOf(t, l, name); got.State != process.Stopped || got.Ready {
			t.Fatalf("killed %s is %+v", name, got)
		}
		failOnError(t, l.StartComponent(t.Context(), name))
		after := statusOf(t, l, name)
		if after.State != process.Running || after.PID == before.PID || after.Port != before.Port {
			t.Fatalf("%s came back as %+v; it was %+v", name, after, before)
		}
	}
	waitForStatus(t, l, "agent/member1", isReady)
	failOnError(t, l.StartComponent(t.Context(), "hub")) // what runs already is no error
}

func TestStartOfAnAgentWithoutItsHubReturns(t *testing.T) {
	t.Parallel()
	l := upFake(t, Options{Members: 1})
	failOnError(t, l.KillComponent(t.Context(), "agent/member1"))
	failOnError(t, l.KillComponent(t.Context(), "hub"))
	failOnError(t, l.StartComponent(t.Context(), "agent/member1"))
	failOnError(t, l.StartComponent(t.Context(), "hub"))
	waitForStatus(t, l, "agent/member1", isReady)
}

func TestLinksBreakAndHeal(t *testing.T) {
	t.Parallel()
	l := upFake(t, Options{Members: 2})
	clusterIsReady := func(name string) error { return checkClusterReady(t.Context(), l.KubeconfigPath("hub"), name) }

	failOnError(t, l.CutLink(t.Context(), "member1"))
	if got := statusOf(t, l, "agent/member1").Link; got != relay.Cut {
		t.Errorf("link is %s; want %s", got, relay.Cut)
	}
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return clusterIsReady("member1") != nil, nil
	})
	failOnError(t, err)
	if err := clusterIsReady("member2"); err != nil {
		t.Errorf("the other link suffers: %v", err)
	}
	failOnError(t, l.HealLink(t.Context(), "member1"))
	waitForStatus(t, l, "agent/member1", isReady)

	failOnError(t, l.DiscardLinkTraffic(t.Context(), "member1"))
	if got := statusOf(t, l, "agent/member1").Link; got != relay.HalfOpen {
		t.Errorf("link is %s; want %s", got, relay.HalfOpen)
	}
	if err := clusterIsReady("member1"); err != nil {
		t.Errorf("a half-open link shows at once: %v", err)
	}
	failOnError(t, l.HealLink(t.Context(), "member1"))
	waitForStatus(t, l, "agent/member1", isReady)

	if err := l.CutLink(t.Context(), "member7"); err == nil || !strings.Contains(err.Error(), "member1 to member2") {
		t.Errorf("error %v for an unknown member; want the names", err)
	}
}

func TestDownEndsEverythingAndUpResumes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := upFake(t, Options{Dir: dir, Members: 1})
	r, err := l.loadRecord()
	failOnError(t, err)
	// One whose start was never recorded, as after a crash of Up.
	failOnError(t, os.Remove(r.relayComponent().process.Identity))
	failOnError(t, l.StopAll(t.Context()))
	for _, c := range r.allComponents() {
		if state, pid := c.process.CurrentState(); state == process.Running {
			t.Errorf("%s still runs as %d", c.name, pid)
		}
	}
	if killed, err := process.KillOwnedProcesses(t.Context(), l.Dir()); err != nil || len(killed) > 0 {
		t.Errorf("down left processes %v, %v", killed, err)
	}

	again := upFake(t, Options{Dir: dir, Members: 1})
	waitForStatus(t, again, "agent/member1", isReady)
	if got := statusOf(t, again, "member1").Port; got != r.Members[0].Port {
		t.Errorf("member1 serves on %d; it was %d", got, r.Members[0].Port)
	}
	if _, err := BringUp(t.Context(), Options{Dir: dir, Members: 2, Binaries: fakeBinaries(t)}); err == nil || !strings.Contains(err.Error(), "lab of 1 members") {
		t.Errorf("error %v for another shape", err)
	}
	failOnError(t, again.Delete(t.Context()))
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is still there: %v", err)
	}
	if _, err := OpenExisting(dir); !errors.Is(err, errNoLab) {
		t.Errorf("error %v for a directory without lab", err)
	}
}

func TestUpNamesTheFailedComponentAndItsError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	failOnError(t, os.WriteFile(filepath.Join(dir, "break-member1"), nil, 0o600))
	_, err := BringUp(t.Context(), Options{Dir: dir, Members: 1, Hubless: true, Binaries: fakeBinaries(t)})
	if err == nil || !strings.Contains(err.Error(), "member1") || !strings.Contains(err.Error(), "broken on purpose") {
		t.Fatalf("error %v; want the component and the end of its log", err)
	}
	// The cause is removed, and the same command continues.
	failOnError(t, os.Remove(filepath.Join(dir, "break-member1")))
	l := upFake(t, Options{Dir: dir, Members: 1, Hubless: true})
	waitForStatus(t, l, "member1", isReady)
	if err := l.CutLink(t.Context(), "member1"); err == nil || !strings.Contains(err.Error(), "no hub") {
		t.Errorf("error %v for a link in a lab without hub", err)
	}
	failOnError(t, l.KillComponent(t.Context(), "member1"))
	waitForStatus(t, l, "member1", notReady)
}

func TestMissingBinaryIsNamed(t *testing.T) {
	_, err := BringUp(t.Context(), Options{Dir: t.TempDir(), Members: 1, Binaries: Binaries{Lab: "/nowhere/atoll-lab"}, Hubless: true})
	if err == nil || !strings.Contains(err.Error(), "/nowhere/atoll-lab") || !strings.Contains(err.Error(), "make build") {
		t.Fatalf("error %v; want the path and what to do", err)
	}
}

func TestPortsAreNotSharedBetweenLabs(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir := t.TempDir()
	seen := map[int]bool{}
	for range 2 {
		p := portPicker{dir: dir}
		for range 200 {
			port := p.pickPort()
			failOnError(t, p.err)
			if seen[port] || port < firstPort || port > lastPort {
				t.Fatalf("port %d is taken or out of range", port)
			}
			seen[port] = true
		}
	}
	// Once old, a reservation of a lab that is gone does not count.
	for port := range seen {
		file := filepath.Join(portReservationDir(), strconv.Itoa(port))
		old := time.Now().Add(-time.Hour)
		failOnError(t, os.Chtimes(file, old, old))
		if held, err := isPortReservationInUse(file); err != nil || held {
			t.Fatalf("held %t, %v for a lab that is gone", held, err)
		}
		failOnError(t, os.WriteFile(filepath.Join(dir, recordName), nil, 0o600))
		if held, err := isPortReservationInUse(file); err != nil || !held {
			t.Fatalf("held %t, %v for a lab that exists", held, err)
		}
		break
	}
}
