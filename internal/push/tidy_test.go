package push

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/agent"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/clusterstatus"
	"atoll.dev/atoll/internal/trust/handshake"
)

// remade Secrets: a user creates one again, under its old name, just before its deletion.
// Preconditions hold, as in the API and unlike in the fake store.
type remade struct {
	listed
	once sync.Once
}

func (r *remade) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	var err error
	r.once.Do(func() {
		old, failed := r.Get(ctx, name, metav1.GetOptions{})
		if err = failed; err != nil {
			return
		}
		if err = r.listed.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return
		}
		old.UID, old.CreationTimestamp = "again", metav1.NewTime(time.Now().Add(time.Second))
		old.Data["token"] = []byte("third")
		_, err = r.Create(ctx, old, metav1.CreateOptions{})
	})
	if err != nil {
		return err
	}
	is, err := r.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if p := o.Preconditions; p != nil && p.UID != nil && *p.UID != is.UID {
		return apierrors.NewConflict(corev1.Resource("secrets"), name, nil)
	}
	return r.listed.Delete(ctx, name, o)
}

// TestOnlyWhatIsOutdatedIsDeleted: not a Secret that a user has created under its name since,
// which may be the only way to the member.
func TestOnlyWhatIsOutdatedIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.secrets = &remade{listed: w.secrets.(listed)}
		stop := w.startSupervisor()
		defer stop()
		waitForQuiet()
		w.clusters.put("oslo", "u1", pushed)
		w.storeCredentials("oslo", "u1", "first")
		waitForQuiet()
		w.storeCredentials("oslo", "u1", "second")
		waitForQuiet()
		w.expectAgents("an outdated Secret is created again", "oslo=third")
		if _, err := w.secrets.Get(t.Context(), "push-oslo-second", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("what is outdated then is there still: %v", err)
		}
	})
}

// TestNothingIsSaidAgainOfAnAgentThatSaysNothing: people are warned of an expiring token, but not
// before the agent has reported its state, nor after its end.
func TestNothingIsSaidAgainOfAnAgentThatSaysNothing(t *testing.T) {
	w := newWorld(t)
	var said []string
	s := New(Options{Clusters: w.clusters, Inventory: pushedFunc(func(_ string, p *clusterstatus.Pushed) { said = append(said, string(p.Reason)) })})
	of := &stageReporter{agentKeeper: &agentKeeper{s: s, cluster: "oslo"}, want: wantedAgent{uid: "u1", credentials: handshake.Credentials{Server: "https://oslo", Token: "e30.eyJleHAiOiAxMDAwfQ.sig"}}}
	of.reportAgain()
	if len(said) > 0 {
		t.Errorf("before it has said anything: %q", said)
	}
	of.setStage(agent.Stage{Works: true})
	if len(said) != 1 || said[0] != string(atoll.ReasonCredentialsExpiring) {
		t.Errorf("of one whose token is about to end: %q", said)
	}
	of.want.credentials.Token = "long-lived" // so that there would be something else to say
	of.endReports()
	of.reportAgain()
	if len(said) != 1 {
		t.Errorf("after its end: %q", said)
	}
}

// TestASecretThatIsGivenAnotherNameIsNobodys: the Cluster that it was for has none any more.
func TestASecretThatIsGivenAnotherNameIsNobodys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.startSupervisor()
		defer stop()
		waitForQuiet()
		w.clusters.put("oslo", "u1", pushed)
		w.clusters.put("lima", "u2", pushed)
		name := w.storeCredentials("oslo", "u1", "first")
		waitForQuiet()
		w.expectAgents("at first", "oslo=first")
		s, err := w.secrets.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s.Labels[handshake.LabelPush] = "lima"
		if _, err := w.secrets.Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		waitForQuiet()
		w.expectAgents("given to another", "")
		w.expectStatus("given to another", "u1", atoll.ReasonCredentialsMissing)
		w.expectStatus("given to another", "u2", atoll.ReasonCredentialsMissing)
	})
}
