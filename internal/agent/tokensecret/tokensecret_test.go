package tokensecret

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
)

const (
	namespace = "atoll-system"
	token     = "atoll1.aaaaaaaaaa.bbbbbbbbbbbbbbbbbbbbbbbbbb"
	newer     = "atoll1.cccccccccc.dddddddddddddddddddddddddd"
)

var resource = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// fixture is a member with a join Secret.
type fixture struct {
	*JoinTokenSecretClient
	t      *testing.T
	client *fake.FakeDynamicClient
	logs   *bytes.Buffer
	tries  []time.Time // of patches
	fails  func(try int) error
}

func newFixture(t *testing.T, value string) *fixture {
	f := &fixture{t: t, logs: &bytes.Buffer{}, fails: func(int) error { return nil }}
	f.client = fake.NewSimpleDynamicClient(scheme.Scheme, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "joining"},
		Data:       map[string][]byte{"name": []byte("oslo"), "token": []byte(value)},
	})
	f.client.PrependReactor("patch", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		f.tries = append(f.tries, time.Now())
		err := f.fails(len(f.tries))
		return err != nil, nil, err
	})
	f.JoinTokenSecretClient = New(Options{
		Secrets: f.client.Resource(resource).Namespace(namespace), Name: "joining", Log: slog.New(slog.NewTextHandler(f.logs, nil)),
	})
	return f
}

// readSecret returns the Secret's keys and the ID of the removed token.
func (f *fixture) readSecret() (keys map[string][]byte, removed string) {
	f.t.Helper()
	object, err := f.client.Tracker().Get(resource, namespace, "joining")
	if err != nil {
		f.t.Fatal(err)
	}
	var s corev1.Secret
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(content, &s)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return s.Data, s.Annotations[AnnotationRemoved]
}

// read reads the token, which must be that.
func (f *fixture) read(want string) {
	f.t.Helper()
	if got, err := f.ReadToken(f.t.Context()); err != nil || got != want {
		f.t.Fatalf("%q is read (%v), not %q", got, err, want)
	}
}

// TestTheTokenIsRemovedOnceTheAgentIsAdmitted: not before, and the other keys stay.
func TestTheTokenIsRemovedOnceTheAgentIsAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, " "+token+"\n")
		f.read(token)
		go f.RemoveAfterAdmission(t.Context())
		time.Sleep(time.Hour)
		if keys, _ := f.readSecret(); len(keys) != 2 {
			t.Fatalf("before the agent is admitted, the Secret holds %v", keys)
		}
		f.NotifyAdmitted()
		f.NotifyAdmitted() // of another session
		f.NotifyAdmitted()
		synctest.Wait()
		keys, removed := f.readSecret()
		if len(keys) != 1 || string(keys["name"]) != "oslo" || removed != "aaaaaaaaaa" || len(f.tries) != 1 {
			t.Errorf("after %d patches the Secret holds %v, without token %q", len(f.tries), keys, removed)
		}
	})
}

// TestWhatIsNotTheAgentsTokenStays: a newer token, and one that is to be kept.
func TestWhatIsNotTheAgentsTokenStays(t *testing.T) {
	for name, c := range map[string]struct {
		keep  bool
		reads string
	}{
		"a newer token":   {false, newer},
		"to be kept":      {true, token},
		"no token at all": {false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, c.reads)
			f.o.Keep = c.keep
			f.read(c.reads)
			if !c.keep {
				u, _, err := f.get(t.Context())
				if err == nil {
					err = unstructured.SetNestedField(u.Object, base64.StdEncoding.EncodeToString([]byte(token)), "data", "token")
				}
				if err == nil {
					_, err = f.o.Secrets.Update(t.Context(), u, metav1.UpdateOptions{})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			f.NotifyAdmitted()
			f.RemoveAfterAdmission(t.Context())
			if keys, removed := f.readSecret(); string(keys["token"]) != token || removed != "" || len(f.tries) != 0 {
				t.Errorf("after %d patches the Secret holds %v, without token %q", len(f.tries), keys, removed)
			}
		})
	}
}

// TestARemovalIsRetriedWithBackoff: a missing right is logged once, with the remedy, and a conflict
// is not. The token is in no line of the log.
func TestARemovalIsRetriedWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, token)
		f.read(token)
		const failures = 14
		f.fails = func(try int) error {
			switch {
			case try > failures:
				return nil
			case try%2 == 0:
				return errors.New("the member's API does not answer")
			}
			return apierrors.NewForbidden(resource.GroupResource(), "joining", errors.New("no rule"))
		}
		f.NotifyAdmitted()
		f.RemoveAfterAdmission(t.Context())
		if keys, _ := f.readSecret(); len(keys) != 1 || len(f.tries) != failures+1 {
			t.Fatalf("after %d tries the Secret holds %v", len(f.tries), keys)
		}
		for i := range failures {
			if pause := f.tries[i+1].Sub(f.tries[i]); pause < time.Second || pause > 10*time.Minute || i > 0 && pause < f.tries[i].Sub(f.tries[i-1]) {
				t.Errorf("try %d is %s after the one before", i+2, pause)
			}
		}
		if pause := f.tries[failures].Sub(f.tries[failures-1]); pause != 10*time.Minute {
			t.Errorf("the last pause is %s", pause)
		}
		logs := f.logs.String()
		if strings.Count(logs, "level=WARN") != 1 || !strings.Contains(logs, "Allow the agent to get and patch") || strings.Contains(logs, "bbbb") {
			t.Errorf("it logs:\n%s", logs)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, token)
		f.read(token)
		f.fails = func(try int) error {
			if try == 1 {
				return apierrors.NewConflict(resource.GroupResource(), "joining", errors.New("changed"))
			}
			return nil
		}
		f.NotifyAdmitted()
		f.RemoveAfterAdmission(t.Context())
		if keys, _ := f.readSecret(); len(keys) != 1 || strings.Contains(f.logs.String(), "level=WARN") {
			t.Errorf("after a conflict the Secret holds %v; it logs:\n%s", keys, f.logs)
		}
	})
}

// TestAFailingRemovalEndsWithTheAgent: what cannot be removed keeps no agent from its end.
func TestAFailingRemovalEndsWithTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, token)
		f.read(token)
		f.fails = func(int) error { return errors.New("the member's API does not answer") }
		f.NotifyAdmitted()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		f.RemoveAfterAdmission(ctx)
		if ctx.Err() == nil {
			t.Error("it gives up")
		}
	})
}

// TestAnAgentStartsWithoutItsToken: where the Secret is missing, or may not be read. A member that
// does not answer is an error, since a first start needs the token.
func TestAnAgentStartsWithoutItsToken(t *testing.T) {
	f := newFixture(t, token)
	f.o.Name = "missing"
	f.read("")
	for _, c := range []struct {
		err   error
		fails bool
	}{
		{apierrors.NewForbidden(resource.GroupResource(), "joining", errors.New("no rule")), false},
		{errors.New("the member's API does not answer"), true},
	} {
		f := newFixture(t, token)
		f.client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.err })
		got, err := f.ReadToken(t.Context())
		if got != "" || (err != nil) != c.fails || c.fails != (f.logs.Len() == 0) {
			t.Errorf("%v: %q is read (%v), and logged:\n%s", c.err, got, err, f.logs)
		}
	}
}
