package get

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
)

// place is a cluster that an object is placed in.
type place struct {
	cluster string
	state   atoll.RowState
	// away: nobody waits for it.
	away bool
	// leaving: it is on its way out, and not counted.
	leaving bool
}

// places of one object, by cluster.
type places []place

// whereabouts of objects, by their keys.
type whereabouts map[atoll.ItemKey]places

// within some clusters.
func (p places) within(clusters []string) places {
	return slices.DeleteFunc(slices.Clone(p), func(one place) bool { return !slices.Contains(clusters, one.cluster) })
}

// ready clusters of those that are to have it.
func (p places) ready() string {
	ready, all := 0, 0
	for _, one := range p {
		if one.leaving {
			continue
		}
		all++
		if one.state == atoll.RowReady {
			ready++
		}
	}
	return fmt.Sprintf("%d/%d", ready, all)
}

// worst first.
var severity = []atoll.RowState{atoll.RowFailed, atoll.RowDegraded, atoll.RowProgressing, atoll.RowReady}

// state is the worst of clusters that are there, and how many are not.
func (p places) state() string {
	worst, away, leaving := len(severity), 0, 0
	for _, one := range p {
		switch {
		case one.leaving:
			leaving++
		case one.away:
			away++
		default:
			worst = min(worst, slices.Index(severity, one.state))
		}
	}
	var words []string
	if worst < len(severity) {
		words = append(words, string(severity[worst]))
	}
	if away > 0 {
		words = append(words, fmt.Sprintf("%d away", away))
	}
	if leaving > 0 {
		words = append(words, fmt.Sprintf("%d leaving", leaving))
	}
	return strings.Join(words, ", ")
}

// names of the clusters, with what is not ready of them.
func (p places) names() string {
	var words []string
	for _, one := range p {
		word := one.cluster
		switch {
		case one.leaving:
			word += "(leaving)"
		case one.away:
			word += "(away)"
		case one.state != atoll.RowReady:
			word += "(" + string(one.state) + ")"
		}
		words = append(words, word)
	}
	return strings.Join(words, ",")
}

// placeOf an item in a row's cluster; false where the row keeps it out.
func placeOf(key atoll.ItemKey, r client.Row, away bool) (place, bool) {
	p := place{cluster: r.Cluster, state: atoll.RowProgressing, away: away, leaving: r.Spec.Phase != atoll.RowActive}
	if r.Spec.Phase == atoll.RowVacant || slices.Contains(r.Spec.NotHere, key.String()) {
		return p, false
	}
	s := r.Status
	if s == nil || s.Generation < r.Spec.Generation {
		return p, true
	}
	i := slices.IndexFunc(s.Items, func(it atoll.ItemStatus) bool { return it.Key == key })
	switch {
	case i >= 0 && s.Items[i].Error:
		p.state = atoll.RowFailed
	case i >= 0 && s.Items[i].Health == atoll.Degraded:
		p.state = atoll.RowDegraded
	case i >= 0 && s.Items[i].Health == atoll.Healthy, i < 0 && s.Applied && s.Unlisted == 0:
		p.state = atoll.RowReady
	}
	return p, true
}

// readAtOnce revisions are read at a time.
const readAtOnce = 8

// where objects run, by the rows of a namespace, or of all.
func where(ctx context.Context, c *client.Cluster, namespace string, all bool, now time.Time) (whereabouts, error) {
	rows, err := client.Rows(ctx, c, func(r client.Row) bool { return all || r.Namespace == namespace })
	if err != nil {
		return nil, err
	}
	away, err := absent(ctx, c, now)
	if err != nil {
		return nil, err
	}
	by := map[string][]client.Row{}
	for _, r := range rows {
		if r.Spec.Revision != "" {
			by[r.Spec.Revision] = append(by[r.Spec.Revision], r)
		}
	}
	out := whereabouts{}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readAtOnce)
	for revision, rows := range by {
		g.Go(func() error {
			keys, err := client.ItemKeys(ctx, c, revision)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			for _, key := range keys {
				for _, r := range rows {
					if p, ok := placeOf(key, r, away[r.Cluster].away); ok {
						out[key] = append(out[key], p)
					}
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for _, p := range out {
		slices.SortFunc(p, func(a, b place) int { return cmp.Compare(a.cluster, b.cluster) })
	}
	return out, nil
}
