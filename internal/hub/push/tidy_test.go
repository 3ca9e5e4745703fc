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
	"atoll.dev/atoll/internal/inventory"
	"atoll.dev/atoll/internal/trust/handshake"
)

// remade Secrets: somebody makes one anew, under the name that it had, just before it is to be
// deleted. Preconditions hold, as they do of the API and do not of the fake store.
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
		old.UID, old.CreationTimestamp = "anew", metav1.NewTime(time.Now().Add(time.Second))
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

// TestOnlyWhatIsOutdatedIsDeleted: not what somebody has made under its name meanwhile, which may
// be all that leads to the member.
func TestOnlyWhatIsOutdatedIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.secrets = &remade{listed: w.secrets.(listed)}
		stop := w.supervise()
		defer stop()
		settle()
		w.clusters.put("oslo", "u1", pushed)
		w.give("oslo", "u1", "first")
		settle()
		w.give("oslo", "u1", "second")
		settle()
		w.runs("what was outdated is made anew", "oslo=third")
		if _, err := w.secrets.Get(t.Context(), "push-oslo-second", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("what is outdated then is there still: %v", err)
		}
	})
}

// TestNothingIsSaidAgainOfAnAgentThatSaysNothing: when its token is about to end people are told,
// but not before it has said how it fares, nor once it is over.
func TestNothingIsSaidAgainOfAnAgentThatSaysNothing(t *testing.T) {
	w := newWorld(t)
	var said []string
	s := New(Options{Clusters: w.clusters, Pushed: func(_ string, p *inventory.Pushed) { said = append(said, p.Reason) }})
	of := &stages{keeper: &keeper{s: s, cluster: "oslo"}, want: want{uid: "u1", credentials: handshake.Credentials{Server: "https://oslo", Token: "e30.eyJleHAiOiAxMDAwfQ.sig"}}}
	of.again()
	if len(said) > 0 {
		t.Errorf("before it has said anything: %q", said)
	}
	of.take(agent.Stage{Works: true})
	if len(said) != 1 || said[0] != ReasonCredentialsExpire {
		t.Errorf("of one whose token is about to end: %q", said)
	}
	of.want.credentials.Token = "long-lived" // so that there would be something else to say
	of.end()
	of.again()
	if len(said) != 1 {
		t.Errorf("after its end: %q", said)
	}
}

// TestASecretThatIsGivenAnotherNameIsNobodys: the Cluster that it was for has none any more.
func TestASecretThatIsGivenAnotherNameIsNobodys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := w.supervise()
		defer stop()
		settle()
		w.clusters.put("oslo", "u1", pushed)
		w.clusters.put("lima", "u2", pushed)
		name := w.give("oslo", "u1", "first")
		settle()
		w.runs("at first", "oslo=first")
		s, err := w.secrets.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s.Labels[handshake.LabelPush] = "lima"
		if _, err := w.secrets.Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		settle()
		w.runs("given to another", "")
		w.says("given to another", "u1", ReasonCredentialsMissing)
		w.says("given to another", "u2", ReasonCredentialsMissing)
	})
}
