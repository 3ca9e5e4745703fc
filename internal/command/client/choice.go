package client

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// ClusterChoice is a choice of clusters, by --clusters. The zero value is all.
type ClusterChoice struct {
	text string
}

// AddTo defines the flag --clusters.
func (o *ClusterChoice) AddTo(flags *pflag.FlagSet) {
	flags.StringVar(&o.text, "clusters", "", "only these: names with commas between them, or a label selector of Clusters, such as env=prod (default: all)")
}

// ChosenNames returns the names of the clusters that are chosen, sorted; nil for all. Names are taken as they are,
// and a selector is one that finds some.
func (o *ClusterChoice) ChosenNames(ctx context.Context, c *Connection) ([]string, error) {
	if o.text == "" {
		return nil, nil
	}
	if !strings.ContainsAny(o.text, "=!() ") {
		names := strings.FieldsFunc(o.text, func(r rune) bool { return r == ',' })
		slices.Sort(names)
		return slices.Compact(names), nil
	}
	found, err := List[v1alpha1.Cluster](ctx, c, Clusters, "", metav1.ListOptions{LabelSelector: o.text})
	if err != nil {
		return nil, fmt.Errorf("find the clusters with %s: %w", o.text, err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no cluster has %s; atoll get clusters -o wide shows their labels", o.text)
	}
	names := make([]string, len(found))
	for i := range found {
		names[i] = found[i].Name
	}
	slices.Sort(names)
	return names, nil
}

// AddClustersToSelector adds clusters to a label selector of what the hub shows of members; no names are
// all clusters.
func AddClustersToSelector(selector string, clusters []string) string {
	if len(clusters) == 0 {
		return selector
	}
	in := fmt.Sprintf("%s in (%s)", atoll.LabelCluster, strings.Join(clusters, ","))
	if selector == "" {
		return in
	}
	return selector + "," + in
}

// WithoutTimeout is the same connection for what lasts: watches, logs that are followed, terminals.
// Nothing but their context ends its requests.
func (c *Connection) WithoutTimeout() (*Connection, error) {
	config := rest.CopyConfig(c.Config)
	config.Timeout = 0
	out := &Connection{Config: config, Namespace: c.Namespace}
	return out, out.createClients()
}
