package inventory

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"atoll.dev/atoll/api/v1alpha1"
)

// mode of a Cluster is set as an administrator does.
func (w *world) mode(name string, mode v1alpha1.ClusterMode) {
	w.t.Helper()
	c, _ := w.Get(name)
	c = c.DeepCopy()
	c.Spec.Mode = mode
	if err := w.client.Update(w.t.Context(), c); err != nil {
		w.t.Fatal(err)
	}
	w.see(c)
	synctest.Wait()
}

// pushed is the condition Pushed in words.
func (w *world) pushed(name string) string {
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
				pass(settle)
				if got := w.pushed("c0"); got != pushed {
					t.Errorf("%s: Pushed is %q, want %q", when, got, pushed)
				}
				if got := w.ready("c0"); got != ready {
					t.Errorf("%s: Ready is %q, want %q", when, got, ready)
				}
			}
			says("of mode Pull", "none", "Unknown NeverConnected")
			w.mode("c0", v1alpha1.ModePush)
			says("nothing is known yet", "none", "Unknown NeverConnected")
			w.Pushed("u0", &Pushed{Reason: "CredentialsMissing", Message: "run this"})
			says("never joined", "False CredentialsMissing", "Unknown CredentialsMissing")
			w.Pushed("u0", &Pushed{OK: true, Reason: "AgentWorks"})
			w.join(0, 1)
			says("joined", "True AgentWorks", "True AgentConnected")
			w.Pushed("u0", &Pushed{Reason: "CredentialsRefused", Message: "run that"})
			unwell := healthy()
			unwell.MemberReady, unwell.MemberMessage = false, "Unauthorized"
			w.Observe("u0", unwell)
			says("the member refuses it", "False CredentialsRefused", "False CredentialsRefused")
			w.lose(0, 1)
			pass(w.o.SilentAfter)
			says("without a stream", "False CredentialsRefused", "Unknown CredentialsRefused")
			w.Pushed("u0", &Pushed{OK: true, Reason: "StandsBy"})
			says("another agent is there, and has no stream", "True StandsBy", "Unknown StreamLost")
			w.Pushed("u0", nil)
			says("another hub runs it", "True StandsBy", "Unknown StreamLost")
			w.mode("c0", v1alpha1.ModePull)
			says("of mode Pull again, which another hub is to see to", "True StandsBy", "Unknown StreamLost")
			w.Pushed("u0", &Pushed{})
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
			w.join(0, 1)
			pass(settle)
			w.mode("c0", v1alpha1.ModePush)
			w.Elsewhere("u0", true, time.Now())
			w.lose(0, 1)
			w.Pushed("u0", &Pushed{OK: true, Reason: "StandsBy"})
			pass(time.Hour)
			if got := w.pushed("c0"); got != "True StandsBy" {
				t.Errorf("Pushed is %q", got)
			}
			w.expect("c0", "True AgentConnected") // which is for the other hub to say
			leads.Store(false)
			w.Elsewhere("u0", false, time.Now())
			w.Pushed("u0", &Pushed{Reason: "MemberUnreachable"})
			pass(time.Hour)
			if got := w.pushed("c0"); got != "False MemberUnreachable" {
				t.Errorf("where no hub holds a stream, and another leads, Pushed is %q", got)
			}
			w.expect("c0", "True AgentConnected") // that it is silent is for the one that leads to say
		})
	})
}
