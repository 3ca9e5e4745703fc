package push

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/pace"
	"atoll.dev/atoll/internal/trust/handshake"
)

var (
	pushed  = v1alpha1.ClusterSpec{Accepted: true, Mode: v1alpha1.ModePush}
	pulled  = v1alpha1.ClusterSpec{Accepted: true, Mode: v1alpha1.ModePull}
	pending = v1alpha1.ClusterSpec{Mode: v1alpha1.ModePush}
)

// waitForQuiet lets what was begun come to rest.
func waitForQuiet() {
	synctest.Wait()
	time.Sleep(2 * time.Second)
	synctest.Wait()
}

func TestAnAgentRunsWhileItsClusterWantsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		metrics := prometheus.NewRegistry()
		w.metrics = metrics
		w.storeCredentials("oslo", "u1", "first")
		w.clusters.put("oslo", "u1", pushed)
		w.clusters.put("lima", "u2", pushed)
		stop := w.startSupervisor()
		waitForQuiet()
		w.expectAgents("at the start", "oslo=first")
		w.expectStatus("at the start", "u1", atoll.ReasonAgentWorks)
		w.expectStatus("without credentials", "u2", atoll.ReasonCredentialsMissing)
		if n := countAgents(t, metrics); n != 2 {
			t.Errorf("%v of 2 clusters are counted", n)
		}

		w.storeCredentials("lima", "u2", "lima")
		waitForQuiet()
		w.expectAgents("once credentials came", "lima=lima,oslo=first")

		w.clusters.put("oslo", "u1", pending)
		waitForQuiet()
		w.expectAgents("not accepted any more", "lima=lima")
		w.expectStatus("not accepted any more", "u1", "")

		w.clusters.put("oslo", "u1", pushed)
		waitForQuiet()
		w.expectAgents("accepted again", "lima=lima,oslo=first")

		w.clusters.put("oslo", "u1", pulled)
		waitForQuiet()
		w.expectAgents("of mode Pull", "lima=lima")
		w.expectStatus("of mode Pull", "u1", atoll.ReasonCredentialsNotUsed)

		w.clusters.put("oslo", "u1", pushed)
		waitForQuiet()
		w.expectAgents("of mode Push again", "lima=lima,oslo=first")

		w.clusters.dropCluster("oslo")
		waitForQuiet()
		w.expectAgents("its Cluster is gone", "lima=lima")
		w.expectStatus("its Cluster is gone", "u1", "")

		w.clusters.put("oslo", "u9", pushed)
		waitForQuiet()
		w.expectAgents("another Cluster of the name", "lima=lima")
		w.expectStatus("another Cluster of the name", "u9", atoll.ReasonCredentialsMissing)
		if n := w.agents.startsOf("lima"); n != 1 {
			t.Errorf("what became of oslo started the agent of lima %d times", n)
		}
		stop()
		if n := countAgents(t, metrics); n != 0 {
			t.Errorf("%v clusters are counted when none is kept", n)
		}
	})
}

// countAgents clusters, under whatever reason; one that is counted under two is there twice.
func countAgents(t *testing.T, from prometheus.Gatherer) float64 {
	t.Helper()
	return gatherValue(t, from, "atoll_push_clusters")
}

// gatherValue is the sum of what is measured under a name, whatever the labels and the signs.
func gatherValue(t *testing.T, from prometheus.Gatherer, name string) (n float64) {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				n += math.Abs(m.GetGauge().GetValue()) + math.Abs(m.GetCounter().GetValue())
			}
		}
	}
	return n
}

// TestAnAgentThatWorkedForLongIsSoonStartedAgain: what went before is forgotten.
func TestAnAgentThatWorkedForLongIsSoonStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ends := make(chan error)
		w.agents.run["oslo"] = func(ctx context.Context, _ agent.Options) error {
			if w.agents.startsOf("oslo") <= 8 {
				return errors.New("broken")
			}
			select {
			case err := <-ends:
				return err
			case <-ctx.Done():
				return nil
			}
		}
		stop := w.startSupervisor()
		defer stop()
		w.clusters.put("oslo", "u1", pushed)
		w.storeCredentials("oslo", "u1", "first")
		time.Sleep(time.Hour)
		ends <- errors.New("at last")
		time.Sleep(backoffLeast + time.Second)
		if n := w.agents.startsOf("oslo"); n != 10 {
			t.Errorf("it was started %d times, wanted at once again", n)
		}
	})
}

func TestCredentialsThatChangeRestartThatAgentAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.startSupervisor()
		defer stop()
		waitForQuiet()
		for _, name := range []string{"oslo", "lima"} {
			w.clusters.put(name, name, pushed)
			w.storeCredentials(name, name, "first")
		}
		waitForQuiet()
		w.expectAgents("both", "lima=first,oslo=first")

		w.storeCredentials("oslo", "oslo", "second")
		waitForQuiet()
		w.expectAgents("a newer Secret", "lima=first,oslo=second")
		if _, err := w.secrets.Get(t.Context(), "push-oslo-first", metav1.GetOptions{}); err == nil {
			t.Error("the older Secret is still there")
		}

		edit := func(change func(*corev1.Secret)) {
			t.Helper()
			s, err := w.secrets.Get(t.Context(), "push-oslo-second", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			change(s)
			if _, err := w.secrets.Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			waitForQuiet()
		}
		before := w.agents.startsOf("oslo")
		edit(func(s *corev1.Secret) { s.Annotations = map[string]string{"why": "nothing"} })
		if n := w.agents.startsOf("oslo"); n != before {
			t.Errorf("an annotation of the Secret restarted the agent")
		}
		edit(func(s *corev1.Secret) { s.Data["token"] = []byte("third") })
		w.expectAgents("the Secret was edited", "lima=first,oslo=third")
		edit(func(s *corev1.Secret) { s.Data["server"] = []byte("http://oslo") })
		w.expectAgents("edited badly", "lima=first")
		w.expectStatus("edited badly", "oslo", atoll.ReasonCredentialsMalformed)
		if n := w.agents.startsOf("lima"); n != 1 {
			t.Errorf("what became of oslo started the agent of lima %d times", n)
		}
	})
}

func TestASecretWrittenByHandGoesWithItsCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.startSupervisor()
		defer stop()
		w.clusters.put("oslo", "u1", pushed)
		w.create(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "by-hand", Labels: map[string]string{handshake.LabelPush: "oslo"}},
			Type:       handshake.PushSecretType, Data: map[string][]byte{"server": []byte("https://oslo"), "token": []byte("t\n")},
		})
		waitForQuiet()
		w.expectAgents("by hand", "oslo=t")
		s, err := w.secrets.Get(t.Context(), "by-hand", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(s.OwnerReferences) != 1 || s.OwnerReferences[0] != handshake.PushOwner("oslo", "u1") {
			t.Errorf("owners of the Secret: %v", s.OwnerReferences)
		}
		if n := w.agents.startsOf("oslo"); n != 1 {
			t.Errorf("the agent started %d times", n)
		}
	})
}

// TestAMemberThatIsSlowOrDeadDelaysNobody: neither one whose agent hangs when it starts, nor
// one that takes minutes to end, nor hundreds that fail at once.
func TestAMemberThatIsSlowOrDeadDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hang := func(ctx context.Context, _ agent.Options) error {
			<-ctx.Done()
			time.Sleep(3 * time.Minute)
			return nil
		}
		fail := func(context.Context, agent.Options) error { return errors.New("broken") }
		w.agents.run["slow"] = hang
		for i := range 300 {
			w.agents.run[fmt.Sprintf("dead-%d", i)] = fail
		}
		stop := w.startSupervisor()
		defer stop()
		waitForQuiet()
		w.clusters.put("slow", "slow", pushed)
		w.storeCredentials("slow", "slow", "first")
		for i := range 300 {
			name := fmt.Sprintf("dead-%d", i)
			w.clusters.put(name, name, pushed)
			w.storeCredentials(name, name, "first")
			synctest.Wait() // the watch of a fake store holds few events
		}
		time.Sleep(10 * time.Minute)
		w.storeCredentials("slow", "slow", "second") // its agent is to end now, and does not for long
		w.clusters.put("oslo", "oslo", pushed)
		begin := time.Now()
		w.storeCredentials("oslo", "oslo", "first")
		waitForQuiet()
		w.agents.mu.Lock()
		took := w.agents.at["oslo"].Sub(begin)
		w.agents.mu.Unlock()
		if w.agents.startsOf("oslo") != 1 || took > time.Second {
			t.Errorf("the agent of a healthy member started %d times, after %s", w.agents.startsOf("oslo"), took)
		}
		w.expectStatus("in between", "dead-1", atoll.ReasonAgentFailed)
		if n := w.agents.startsOf("dead-1"); n < 8 || n > 25 {
			t.Errorf("an agent that fails at once was started %d times in 10 minutes", n)
		}
		time.Sleep(4 * time.Minute)
		if n := w.agents.startsOf("slow"); n != 2 {
			t.Errorf("the slow agent was started %d times", n)
		}
	})
}

func TestAgentsStartAtAPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.startSupervisor()
		defer stop()
		waitForQuiet()
		for i := range 420 {
			name := fmt.Sprintf("m-%d", i)
			w.storeCredentials(name, name, "first")
			synctest.Wait() // the watch of a fake store holds few events
		}
		for i := range 420 {
			name := fmt.Sprintf("m-%d", i)
			w.clusters.put(name, name, pushed)
		}
		synctest.Wait()
		if n, burst := len(w.agents.runningNow()), pace.AgentStarts.Burst; n > burst {
			t.Errorf("%d agents started at once, want %d at most", n, burst)
		}
		time.Sleep(4 * time.Second)
		if n := len(w.agents.runningNow()); n < 170 || n > 270 {
			t.Errorf("%d agents run after 4 s", n)
		}
		time.Sleep(5 * time.Second)
		if n := len(w.agents.runningNow()); n != 420 {
			t.Errorf("%d agents run after 9 s", n)
		}
	})
}

func TestWhatKeepsAnAgentIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.agents.run["oslo"] = func(ctx context.Context, o agent.Options) error {
			for i := range 10 {
				o.Stage(agent.Stage{Err: fmt.Errorf("no route, try %d", i)})
				time.Sleep(time.Second)
			}
			o.Stage(agent.Stage{Holder: "host7_pod_boot_1_2_XYZ"})
			time.Sleep(time.Second)
			o.Stage(agent.Stage{Works: true})
			<-ctx.Done()
			return nil
		}
		stop := w.startSupervisor()
		defer stop()
		w.clusters.put("oslo", "u1", pushed)
		w.storeCredentials("oslo", "u1", "first")
		time.Sleep(5 * time.Second)
		w.expectStatus("it cannot be reached", "u1", atoll.ReasonMemberUnreachable)
		w.mu.Lock()
		first := w.reported["u1"]
		w.mu.Unlock()
		time.Sleep(3 * time.Second)
		w.mu.Lock()
		if w.reported["u1"] != first {
			t.Errorf("reported again: %v, after %v", w.reported["u1"], first)
		}
		w.mu.Unlock()
		time.Sleep(2500 * time.Millisecond)
		w.expectStatus("another agent is there", "u1", atoll.ReasonStandsBy)
		time.Sleep(time.Second)
		w.expectStatus("it works", "u1", atoll.ReasonAgentWorks)
	})
}

// A token with a known expiry is reported in time, though nothing else happens.
func TestATokenThatEndsIsToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ending := func(life time.Duration) string {
			payload := fmt.Sprintf(`{"iat": %d, "exp": %d}`, time.Now().Unix(), time.Now().Add(life).Unix())
			return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".sig"
		}
		const day = 24 * time.Hour
		for cluster, life := range map[string]time.Duration{"oslo": 8 * day, "lima": 100 * day, "rome": -day} {
			w.storeCredentials(cluster, "u-"+cluster, ending(life))
			w.clusters.put(cluster, "u-"+cluster, pushed)
		}
		w.storeCredentials("bern", "u-bern", "long-lived")
		w.clusters.put("bern", "u-bern", pushed)
		stop := w.startSupervisor()
		defer stop()
		waitForQuiet()
		w.expectStatus("at the start", "u-oslo", atoll.ReasonAgentWorks)
		w.expectStatus("at the start", "u-lima", atoll.ReasonAgentWorks)
		w.expectStatus("ended, and still taken", "u-rome", atoll.ReasonCredentialsExpiring)
		time.Sleep(6*day + time.Minute)
		w.expectStatus("a quarter of its life is left", "u-oslo", atoll.ReasonCredentialsExpiring)
		w.expectStatus("most of its life is left", "u-lima", atoll.ReasonAgentWorks)
		w.storeCredentials("oslo", "u-oslo", ending(8*day))
		waitForQuiet()
		w.expectStatus("with another one", "u-oslo", atoll.ReasonAgentWorks)
		time.Sleep(74 * day)
		w.expectStatus("21 days are left", "u-lima", atoll.ReasonCredentialsExpiring)
		w.expectStatus("of no end", "u-bern", atoll.ReasonAgentWorks)
	})
}

// TestAMemberIsOneCluster: an agent that finds a member of another Cluster would answer for
// that one, while this one is said to work.
func TestAMemberIsOneCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.agents.run["rome"] = func(ctx context.Context, o agent.Options) error {
			if err := o.Whose("oslo", "u1"); err != nil {
				return err
			}
			for name, uid := range map[string]string{"rome": "u2", "oslo": "of an earlier one", "lima": "gone"} {
				if err := o.Whose(name, uid); err != nil {
					t.Errorf("a member that was %s with UID %s: %v", name, uid, err)
				}
			}
			o.Stage(agent.Stage{Works: true})
			<-ctx.Done()
			return nil
		}
		stop := w.startSupervisor()
		defer stop()
		w.clusters.put("oslo", "u1", v1alpha1.ClusterSpec{Accepted: true})
		w.clusters.put("rome", "u2", pushed)
		w.storeCredentials("rome", "u2", "first")
		time.Sleep(5 * time.Second)
		w.expectStatus("while the member is oslo", "u2", atoll.ReasonAgentFailed)
		w.mu.Lock()
		if reported := w.reported["u2"]; reported != nil && !strings.Contains(reported.Message, "is cluster oslo of this hub") {
			t.Errorf("the report is: %s", reported.Message)
		}
		w.mu.Unlock()
		w.clusters.dropCluster("oslo")
		time.Sleep(2 * time.Minute)
		w.expectStatus("when there is no oslo any more", "u2", atoll.ReasonAgentWorks)
	})
}
