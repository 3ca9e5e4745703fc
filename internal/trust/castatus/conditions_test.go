package castatus

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/state"
	"atoll.dev/atoll/internal/trust/standing"
)

// A hub makes its HubSettings when a condition turns true. From then on both conditions are there,
// and are written when they change.
func TestHubConditions(t *testing.T) {
	writes := 0
	c := fake.NewClientBuilder().WithScheme(state.NewScheme()).WithStatusSubresource(&v1alpha1.HubSettings{}).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			writes++
			return c.Create(ctx, o, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			writes++
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
	}).Build()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tell := func(s standing.CAStatus, wantWrites int) []metav1.Condition {
		t.Helper()
		writes = 0
		now = now.Add(time.Minute)
		if err := UpdateHubSettingsStatus(t.Context(), c, s, metav1.NewTime(now)); err != nil {
			t.Fatal(err)
		}
		if writes != wantWrites {
			t.Errorf("%d writes, not %d", writes, wantWrites)
		}
		hub := &v1alpha1.HubSettings{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: v1alpha1.HubSettingsName}, hub); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		return hub.Status.Conditions
	}
	began := now
	if got := tell(standing.CAStatus{}, 0); len(got) != 0 {
		t.Errorf("nothing to report: %+v", got)
	}
	tell(standing.CAStatus{RotatingSince: &began, Agents: standing.AgentCertificateCounts{Current: 1, Former: 2}}, 2)
	got := tell(standing.CAStatus{RotatingSince: &began, Agents: standing.AgentCertificateCounts{Current: 1, Former: 2}}, 0)
	if one := meta.FindStatusCondition(got, v1alpha1.HubRotatingCAs); one == nil || one.Reason != "AgentsFollow" || !strings.HasPrefix(one.Message, "1 agents have certificates of the new CA, 2 ") || !meta.IsStatusConditionFalse(got, v1alpha1.HubCertificatesExpiring) {
		t.Errorf("%+v", got)
	}
	got = tell(standing.CAStatus{RotatingSince: &began, Agents: standing.AgentCertificateCounts{Current: 3, Away: 1}, Warnings: []string{"a", "b"}}, 1)
	if one := meta.FindStatusCondition(got, v1alpha1.HubRotatingCAs); one == nil || one.Reason != "ReadyToFinish" || !strings.Contains(one.Message, "atoll ca finish") {
		t.Errorf("%+v", got)
	}
	if one := meta.FindStatusCondition(got, v1alpha1.HubCertificatesExpiring); one == nil || one.Message != "a; b" {
		t.Errorf("%+v", got)
	}
	got = tell(standing.CAStatus{}, 1)
	for _, kind := range []string{v1alpha1.HubCertificatesExpiring, v1alpha1.HubRotatingCAs} {
		if c := meta.FindStatusCondition(got, kind); c == nil || c.Status != metav1.ConditionFalse || c.Reason == "" || c.Message != "" || !c.LastTransitionTime.Equal(&metav1.Time{Time: now}) {
			t.Errorf("%s in the end: %+v", kind, c)
		}
	}
}

// settingsFeed notifies of changes of the HubSettings.
type settingsFeed struct{ notify func(name string) }

func (f *settingsFeed) Subscribe(fn func(name string)) { f.notify = fn }

// HubSettings that come after the first check have their conditions at once, and not at the next check.
func TestConditionsOfNewHubSettings(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(state.NewScheme()).WithStatusSubresource(&v1alpha1.HubSettings{}).Build()
	hub := newFakeHub(t)
	synctest.Test(t, func(t *testing.T) {
		feed := &settingsFeed{}
		r := hub.newReporter()
		r.Settings = feed
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.RunConditions(ctx, c, slog.New(slog.DiscardHandler)) }()
		synctest.Wait()
		settings := &v1alpha1.HubSettings{}
		settings.Name = v1alpha1.HubSettingsName
		if err := c.Create(t.Context(), settings); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		feed.notify(settings.Name)
		synctest.Wait()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(settings), settings); err != nil || len(settings.Status.Conditions) != 2 || time.Since(began) != 0 {
			t.Errorf("conditions %+v after %s, %v", settings.Status.Conditions, time.Since(began), err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
