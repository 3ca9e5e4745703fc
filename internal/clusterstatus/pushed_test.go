package clusterstatus

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"atoll.dev/atoll/api/v1alpha1"
)

// setMode of a Cluster is set as an administrator does.
func (w *world) setMode(name string, mode v1alpha1.ClusterMode) {
	w.t.Helper()
	c, _ := w.Get(name)
	c = c.DeepCopy()
	c.Spec.Mode = mode
	if err := w.client.Update(w.t.Context(), c); err != nil {
		w.t.Fatal(err)
	}
	w.putCluster(c)
	synctest.Wait()
}

// pushReason is the condition Pushed in words.
func (w *world) pushReason(name string) string {
	c, _ := w.Get(name)
	cond := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ClusterPushed)
	if cond == nil {
		return "none"
	}
	return string(cond.Status) + " " + cond.Reason
}

func TestWhatKeepsTheHubsAgentIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.run(func() {
			says := func(when, pushed, ready string) {
				t.Helper()
				advanceClock(settle)
				if got := w.pushReason("c0"); got != pushed {
					t.Errorf("%s: Pushed is %q, want %q", when, got, pushed)
				}
				if got := w.readyReason("c0"); got != ready {
					t.Errorf("%s: Ready is %q, want %q", when, got, ready)
				}
			}
			says("of mode Pull", "none", "Unknown NeverConnected")
			w.setMode("c0", v1alpha1.ModePush)
			says("nothing is known yet", "none", "Unknown NeverConnected")
			w.SetPushAgentState("u0", &Pushed{Reason: "CredentialsMissing", Message: "run this"})
			says("never joined", "False CredentialsMissing", "Unknown CredentialsMissing")
			w.SetPushAgentState("u0", &Pushed{OK: true, Reason: "AgentWorks"})
			w.joinClusters(0, 1)
			says("joined", "True AgentWorks", "True AgentConnected")
			w.SetPushAgentState("u0", &Pushed{Reason: "CredentialsRefused", Message: "run that"})
			unwell := healthyInventory()
			unwell.MemberReady, unwell.MemberMessage = false, "Unauthorized"
			w.RecordInventory("u0", unwell)
			says("the member refuses it", "False CredentialsRefused", "False CredentialsRefused")
			w.loseClusters(0, 1)
			advanceClock(w.o.SilentAfter)
			says("without a stream", "False CredentialsRefused", "Unknown CredentialsRefused")
			w.SetPushAgentState("u0", &Pushed{OK: true, Reason: "StandsBy"})
			says("another agent is there, and has no stream", "True StandsBy", "Unknown StreamLost")
			w.SetPushAgentState("u0", nil)
			says("another hub runs it", "True StandsBy", "Unknown StreamLost")
			w.setMode("c0", v1alpha1.ModePull)
			says("of mode Pull again, which another hub is to see to", "True StandsBy", "Unknown StreamLost")
			w.SetPushAgentState("u0", &Pushed{})
			says("that hub is this one", "none", "Unknown StreamLost")
		})
	})
}

// TestTheHubThatRunsTheAgentSaysHowItFares although another one holds the stream.
func TestTheHubThatRunsTheAgentSaysHowItFares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		var leads, complete atomic.Bool
		leads.Store(true)
		complete.Store(true)
		w.oneOf(&leads, &complete)
		w.run(func() {
			w.joinClusters(0, 1)
			advanceClock(settle)
			w.setMode("c0", v1alpha1.ModePush)
			w.SetRemoteStream("u0", true, time.Now())
			w.loseClusters(0, 1)
			w.SetPushAgentState("u0", &Pushed{OK: true, Reason: "StandsBy"})
			advanceClock(time.Hour)
			if got := w.pushReason("c0"); got != "True StandsBy" {
				t.Errorf("Pushed is %q", got)
			}
			w.expectReady("c0", "True AgentConnected") // which is for the other hub to say
			leads.Store(false)
			w.SetRemoteStream("u0", false, time.Now())
			w.SetPushAgentState("u0", &Pushed{Reason: "MemberUnreachable"})
			advanceClock(time.Hour)
			if got := w.pushReason("c0"); got != "False MemberUnreachable" {
				t.Errorf("where no hub holds a stream, and another leads, Pushed is %q", got)
			}
			w.expectReady("c0", "True AgentConnected") // that it is silent is for the one that leads to say
		})
	})
}
