// Package profiles publishes the accepted clusters of a hub as ClusterProfiles, the
// inventory of Kubernetes' SIG Multicluster, in the namespace atoll-inventory.
//
// Contract: one Publisher per hub writes, while its hub leads. What is published follows from
// the Cluster alone (Of, a pure function), and is written when that changes, never because a
// cluster is alive: a new cluster costs two writes, a change of what is said of it one.
// Writes are paced to most a second, behind whatever else the hub does. A profile is taken
// away when its Cluster is gone or not accepted any more, or when HubSettings say that nothing
// is published; nothing but profiles of that namespace whose label says that they are Atoll's
// is ever touched. Profiles that others changed or deleted are put right when the hub starts,
// and when their cluster changes. Run is called once, when the tables are synced. Of each
// cluster 16 bytes and its name are kept.
package profiles

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	multicluster "atoll.dev/atoll/api/multicluster/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/reconcile"
)

const (
	// most profiles that are written a second, and at once after a rest.
	most = 50
	// page of profiles that are read at a time when the hub starts, and how long it waits
	// after that failed: an inventory for others ends nobody's lead.
	page, readAgain = 500, 5 * time.Second
)

// Clusters is the table of members.
type Clusters interface {
	Get(name string) (*v1alpha1.Cluster, bool)
	List() []*v1alpha1.Cluster
	Subscribe(fn func(name string))
}

// Settings say whether clusters are published.
type Settings interface {
	Profiles() bool
	Subscribe(fn func(name string))
}

// Config of a Publisher. All but Log must be set.
type Config struct {
	Clusters Clusters
	Settings Settings
	// Client must not read from a cache.
	Client client.Client
	Hub    Hub
	// Log; nil: slog's default.
	Log *slog.Logger
}

// Publisher of ClusterProfiles. Make it with New.
type Publisher struct {
	Config
	limit *rate.Limiter
	loop  *reconcile.Loop[string] // by name

	mu        sync.Mutex
	published map[string]string // print by name
}

// New makes a Publisher and subscribes it to the tables.
func New(cfg Config) *Publisher {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	p := &Publisher{Config: cfg, limit: rate.NewLimiter(most, most), published: map[string]string{}}
	p.loop = reconcile.New("profiles", p.publish, func(name string, err error) {
		if !apierrors.IsConflict(err) {
			p.Log.Warn("a cluster's profile is not published as it should be, trying again", "cluster", name, "err", err)
		}
	})
	cfg.Clusters.Subscribe(p.loop.Look)
	cfg.Settings.Subscribe(func(string) { p.all() })
	return p
}

// Run until ctx ends.
func (p *Publisher) Run(ctx context.Context) error {
	for {
		err := p.read(ctx)
		if err == nil {
			break
		}
		p.Log.Warn("nothing is published before it is known what is; trying again", "after", readAgain, "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(readAgain):
		}
	}
	p.loop.Run(ctx, p.all)
	return nil
}

// read what is published.
func (p *Publisher) read(ctx context.Context) error {
	for more := ""; ; {
		var list multicluster.ClusterProfileList
		err := p.Client.List(ctx, &list, client.InNamespace(Namespace), client.MatchingLabels{multicluster.LabelClusterManager: Manager}, client.Limit(page), client.Continue(more))
		if err != nil {
			return fmt.Errorf("read the published cluster profiles: %w", err)
		}
		p.mu.Lock()
		for i := range list.Items {
			p.published[list.Items[i].Name] = printOf(&list.Items[i])
		}
		p.mu.Unlock()
		if more = list.Continue; more == "" {
			return nil
		}
	}
}

// all clusters, and all that is published.
func (p *Publisher) all() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.published {
		p.loop.Look(name)
	}
	for _, c := range p.Clusters.List() {
		p.loop.Look(c.Name)
	}
}

// publish one cluster, or take its profile away.
func (p *Publisher) publish(ctx context.Context, name string) (again time.Duration, err error) {
	var want *multicluster.ClusterProfile
	if c, ok := p.Clusters.Get(name); ok && p.Settings.Profiles() {
		want = Of(c, p.Hub)
	}
	p.mu.Lock()
	was, is := p.published[name], printOf(want)
	p.mu.Unlock()
	if was == is {
		return 0, nil
	}
	if err := p.limit.Wait(ctx); err != nil {
		return 0, err
	}
	if want == nil {
		err = p.withdraw(ctx, name)
	} else {
		err = p.write(ctx, want)
	}
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.published[name] = is; is == "" {
		delete(p.published, name)
	}
	return 0, nil
}

func (p *Publisher) write(ctx context.Context, want *multicluster.ClusterProfile) error {
	var now multicluster.ClusterProfile
	err := p.Client.Get(ctx, client.ObjectKeyFromObject(want), &now)
	switch {
	case apierrors.IsNotFound(err):
		now = multicluster.ClusterProfile{ObjectMeta: *want.ObjectMeta.DeepCopy(), Spec: want.Spec}
		if err := p.Client.Create(ctx, &now); err != nil {
			return fmt.Errorf("publish cluster %s: %w", want.Name, err)
		}
	case err != nil:
		return fmt.Errorf("read the profile of cluster %s: %w", want.Name, err)
	case now.Labels[multicluster.LabelClusterManager] != Manager || now.Spec.ClusterManager.Name != Manager:
		return fmt.Errorf("publish cluster %s: the ClusterProfile %s/%s is of cluster manager %q: delete or rename it", want.Name, now.Namespace, now.Name, now.Spec.ClusterManager.Name)
	case printOf(&multicluster.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Labels: now.Labels}, Spec: now.Spec}) != printOf(&multicluster.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Labels: want.Labels}, Spec: want.Spec}):
		now.Labels, now.Spec = want.Labels, want.Spec
		if err := p.Client.Update(ctx, &now); err != nil {
			return fmt.Errorf("publish cluster %s: %w", want.Name, err)
		}
	}
	now.Status = want.Status
	if err := p.Client.Status().Update(ctx, &now); err != nil {
		return fmt.Errorf("publish what is known of cluster %s: %w", want.Name, err)
	}
	return nil
}

// withdraw a profile, if it is still Atoll's.
func (p *Publisher) withdraw(ctx context.Context, name string) error {
	var now multicluster.ClusterProfile
	if err := p.Client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: name}, &now); err != nil {
		return client.IgnoreNotFound(err)
	}
	if now.Labels[multicluster.LabelClusterManager] != Manager {
		return nil
	}
	if err := p.Client.Delete(ctx, &now, client.Preconditions{UID: &now.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("take the profile of cluster %s away: %w", name, err)
	}
	return nil
}
