package filteredwatch_test

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"atoll.dev/atoll/internal/filteredwatch"
)

// recordingClient records the options of its calls.
type recordingClient struct{ got []metav1.ListOptions }

func (c *recordingClient) List(_ context.Context, o metav1.ListOptions) (*corev1.SecretList, error) {
	c.got = append(c.got, o)
	return &corev1.SecretList{}, nil
}

func (c *recordingClient) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	c.got = append(c.got, o)
	return watch.NewFake(), nil
}

// Lists and watches select the same objects, and keep the caller's other options.
func TestListAndWatchSelectTheSame(t *testing.T) {
	for name, c := range map[string]struct {
		source func(filteredwatch.Client[*corev1.SecretList], string) cache.ListerWatcher
		want   metav1.ListOptions
	}{
		"by fields": {filteredwatch.FieldSelectedSource[*corev1.SecretList], metav1.ListOptions{FieldSelector: "a=b", ResourceVersion: "7"}},
		"by labels": {filteredwatch.LabelSelectedSource[*corev1.SecretList], metav1.ListOptions{LabelSelector: "a=b", ResourceVersion: "7"}},
	} {
		client := &recordingClient{}
		source := cache.ToListerWatcherWithContext(c.source(client, "a=b"))
		if _, err := source.ListWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "7"}); err != nil {
			t.Fatal(err)
		}
		w, err := source.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "7"})
		if err != nil {
			t.Fatal(err)
		}
		w.Stop()
		if !slices.EqualFunc(client.got, []metav1.ListOptions{c.want, c.want}, func(a, b metav1.ListOptions) bool { return a == b }) {
			t.Errorf("%s: the options are %+v", name, client.got)
		}
	}
}
