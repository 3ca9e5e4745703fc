package get

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
)

// getObjectsOptions lists objects of any kind that the hub serves.
type getObjectsOptions struct {
	getOptions
	choice   client.ClusterChoice
	color    output.Color
	selector string
	fields   string
	watch    bool
}

// setUpCommand gives the command the arguments, flags and run function that show objects of any
// kind.
func (o *getObjectsOptions) setUpCommand(cmd *cobra.Command) {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args)
	}
	o.addNamespaceFlags(cmd)
	f := cmd.Flags()
	o.choice.AddTo(f)
	o.color.AddTo(f)
	f.StringVarP(&o.selector, "selector", "l", "", "label selector, such as app=web")
	f.StringVar(&o.fields, "field-selector", "", "field selector, such as status.phase=Running")
	f.BoolVarP(&o.watch, "watch", "w", false, "go on with what changes, until ^C")
	o.format.AddTo(f, "json", "yaml", "wide", "name")
}

// objectQuery is what to get of which kind.
type objectQuery struct {
	mapping   *meta.RESTMapping
	namespace string
	names     []string
	clusters  []string
}

// shown live: kinds of which the hub shows what runs in members.
var shown = map[schema.GroupResource]bool{
	{Resource: "pods"}: true, {Resource: "events"}: true, {Group: "events.k8s.io", Resource: "events"}: true,
	{Group: "apps", Resource: "replicasets"}: true, {Group: "apps", Resource: "controllerrevisions"}: true,
	{Group: "discovery.k8s.io", Resource: "endpointslices"}: true, {Group: "metrics.k8s.io", Resource: "pods"}: true,
}

// isLiveKind reports whether the requested kind runs in members.
func (a objectQuery) isLiveKind() bool { return shown[a.mapping.Resource.GroupResource()] }

// isNodeKind reports whether the requested kind is clusters, seen as nodes.
func (a objectQuery) isNodeKind() bool {
	return a.mapping.Resource.Resource == "nodes" && (a.mapping.Resource.Group == "" || a.mapping.Resource.Group == "metrics.k8s.io")
}

// isPlaceableKind reports whether objects of the kind may run in clusters: what is ours does not.
func (a objectQuery) isPlaceableKind() bool {
	g := a.mapping.Resource.Group
	return !a.isLiveKind() && !a.isNodeKind() && g != "atoll.dev" && !strings.HasSuffix(g, ".atoll.dev")
}

func (o *getObjectsOptions) run(ctx context.Context, out, notes io.Writer, args []string) error {
	c, err := o.connectHub()
	if err != nil {
		return err
	}
	a, err := o.parseArguments(ctx, c, args)
	if err != nil {
		return err
	}
	structured := o.format.IsFormat("json") || o.format.IsFormat("yaml")
	switch {
	case structured && o.watch:
		return errors.New("-w shows a table: leave out -o json or yaml")
	case o.watch && len(a.names) > 1:
		return errors.New("-w is of a kind, or of one object")
	case structured:
		return o.printWhole(ctx, c, a, out)
	}
	p := &tablePrinter{o: o, request: a, client: c, out: out, notes: notes, palette: &output.Palette{On: o.color.IsEnabled(out)}}
	return p.printAndWatch(ctx)
}

// parseArguments parses KIND [NAME...] or KIND/NAME.
func (o *getObjectsOptions) parseArguments(ctx context.Context, c *client.Connection, args []string) (objectQuery, error) {
	kind, names := args[0], args[1:]
	if before, name, ok := strings.Cut(kind, "/"); ok {
		kind, names = before, append([]string{name}, names...)
	}
	mapping, err := c.MappingFor(ctx, kind)
	if err != nil {
		return objectQuery{}, err
	}
	a := objectQuery{mapping: mapping, names: names}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		a.namespace = c.Namespace
	}
	if len(names) > 0 && (o.selector != "" || o.fields != "" || o.all) {
		return a, errors.New("name objects, or select them with -l, --field-selector or -A, not both")
	}
	a.clusters, err = o.choice.ChosenNames(ctx, c)
	return a, err
}

// listOptions returns the list options of the query, from the command's flags.
func (o *getObjectsOptions) listOptions(a objectQuery) metav1.ListOptions {
	l := metav1.ListOptions{LabelSelector: o.selector, FieldSelector: o.fields}
	if a.isLiveKind() {
		l.LabelSelector = client.AddClustersToSelector(o.selector, a.clusters)
	}
	if len(a.names) == 1 {
		l.FieldSelector = "metadata.name=" + a.names[0]
	}
	return l
}

// printWhole prints all that the hub gives, as it gives it.
func (o *getObjectsOptions) printWhole(ctx context.Context, c *client.Connection, a objectQuery, out io.Writer) error {
	from := c.Dynamic.Resource(a.mapping.Resource).Namespace(a.namespace)
	var items []any
	if len(a.names) > 0 {
		for _, name := range a.names {
			one, err := from.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return notFoundError(c, a, name, err)
			}
			items = append(items, one.Object)
		}
		if len(items) == 1 {
			_, err := o.format.PrintStructured(out, items[0])
			return err
		}
	} else {
		all, err := client.List[unstructured.Unstructured](ctx, c, a.mapping.Resource, a.namespace, o.listOptions(a))
		if err != nil {
			return err
		}
		for _, one := range all {
			if in := a.clusterOf(&one); !a.isNodeKind() && !a.isLiveKind() || in == "" && a.clusters == nil || a.isChosen(in) {
				items = append(items, one.Object)
			}
		}
	}
	_, err := o.format.PrintStructured(out, newListObject(items))
	return err
}

// notFoundError returns what to do about an object that is not there.
func notFoundError(c *client.Connection, a objectQuery, name string, err error) error {
	if !apierrors.IsNotFound(err) {
		return c.ExplainError(err)
	}
	if a.isLiveKind() {
		return fmt.Errorf("%w; what runs in a cluster is named NAME.CLUSTER, and atoll get %s shows all", err, a.mapping.Resource.Resource)
	}
	return err
}

// clusterOf returns the cluster of an object that is shown; empty for what is stored.
func (a objectQuery) clusterOf(m metav1.Object) string {
	if a.isNodeKind() {
		return m.GetName()
	}
	return m.GetLabels()[atoll.LabelCluster]
}

// isChosen reports whether the flag --clusters selects the cluster.
func (a objectQuery) isChosen(cluster string) bool {
	return a.clusters == nil || slices.Contains(a.clusters, cluster)
}
