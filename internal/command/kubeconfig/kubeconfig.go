// Package kubeconfig is the command `atoll kubeconfig`: contexts by which kubectl, and
// whatever else reads a kubeconfig, talks to members through the hub.
//
// Contract: a context of a member is that of the hub with another address: the same CA and
// the same user, whose credentials it takes along, so what is printed is as secret as the
// hub's own kubeconfig. Nothing of a member is in it. A file is only written with --merge,
// under kubectl's own lock; contexts of others in it are never replaced.
package kubeconfig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/phrase"
)

type kubeconfigOptions struct {
	flags    *client.ConnectionFlags
	clusters []string
	all      bool
	selector string
	prefix   string
	merge    bool
}

// NewCommand makes the command.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	o := &kubeconfigOptions{flags: flags}
	cmd := &cobra.Command{
		Use:   "kubeconfig [--cluster NAME | --all]",
		Short: "Print a kubeconfig by which kubectl reaches members through the hub",
		Long: `Print a kubeconfig with a context for each cluster that is named, by which kubectl, k9s,
Helm, Argo CD and others reach its API through the hub, however deep behind NAT it is.

Requests are made as the user of the hub's kubeconfig: the hub checks its RBAC for
clusters/proxy of that cluster (or clustersets/proxy of a set that it is in), and the
cluster its own for everything else. Users and groups keep their names there; the hub's
administrators are in the group "atoll:masters", ServiceAccounts are called
"atoll:serviceaccount:NAMESPACE:NAME". A cluster grants them nothing by itself:

  kubectl create clusterrolebinding hub-admins --clusterrole cluster-admin --group atoll:masters

Without flags, the hub's own context is printed. The credentials of the hub's kubeconfig
are in what is printed.`,
		Example: `  atoll kubeconfig --cluster tokyo-1 > tokyo-1.kubeconfig
  kubectl --kubeconfig tokyo-1.kubeconfig get nodes

  atoll kubeconfig --all --merge       # into the kubeconfig in use
  kubectl --context tokyo-1 logs -f deploy/web -n shop`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.clusters, "cluster", nil, "cluster to make a context for; may be repeated")
	f.BoolVar(&o.all, "all", false, "all clusters that the hub accepts and that hold a stream")
	f.StringVarP(&o.selector, "selector", "l", "", "of these only those with such labels; with --all")
	f.StringVar(&o.prefix, "prefix", "", "put before the names of contexts, for names that are taken")
	f.BoolVar(&o.merge, "merge", false, "write into the kubeconfig in use in place of printing; its current context stays")
	cmd.MarkFlagsMutuallyExclusive("cluster", "all")
	return cmd
}

func (o *kubeconfigOptions) run(cmd *cobra.Command) error {
	if o.selector != "" && !o.all {
		return errors.New("--selector chooses among all clusters: give --all, too")
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.flags.Kubeconfig
	hub, name, err := o.hubConfig(rules)
	if err != nil {
		return err
	}
	members, err := o.requestedMemberNames(cmd.Context())
	if err != nil {
		return err
	}
	made := buildMemberOrHubKubeconfig(hub, name, members, o.prefix)
	if o.merge {
		return mergeKubeconfig(cmd, rules, made, members, o.prefix)
	}
	if err := clientcmdapi.FlattenConfig(made); err != nil {
		return fmt.Errorf("read what the kubeconfig names: %w", err)
	}
	out, err := clientcmd.Write(*made)
	if err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	_, err = cmd.OutOrStdout().Write(out)
	return err
}

// hubConfig returns the kubeconfig in use and the name of the hub's context in it.
func (o *kubeconfigOptions) hubConfig(rules *clientcmd.ClientConfigLoadingRules) (*clientcmdapi.Config, string, error) {
	config, err := rules.Load()
	if err != nil {
		return nil, "", fmt.Errorf("kubeconfig: %w", err)
	}
	name := o.flags.Context
	if name == "" {
		name = config.CurrentContext
	}
	c := config.Contexts[name]
	switch {
	case len(config.Contexts) == 0:
		return nil, "", errors.New("no kubeconfig: name the hub's with --kubeconfig or $KUBECONFIG; the hub writes its administrator's to hub.kubeconfig in its data directory")
	case c == nil:
		return nil, "", fmt.Errorf("the kubeconfig has no context %q; it has %s", name, strings.Join(contextNames(config), ", "))
	case config.Clusters[c.Cluster] == nil:
		return nil, "", fmt.Errorf("context %q of the kubeconfig names a cluster %q that is not in it", name, c.Cluster)
	}
	if server := config.Clusters[c.Cluster].Server; strings.Contains(server, atoll.ClusterProxyPrefix) {
		return nil, "", fmt.Errorf("context %q is a member's, reached through a hub; choose the hub's own with --context", name)
	}
	return config, name, nil
}

func contextNames(c *clientcmdapi.Config) []string {
	var names []string
	for name := range c.Contexts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// requestedMemberNames returns the members to make contexts for, by name.
func (o *kubeconfigOptions) requestedMemberNames(ctx context.Context) ([]string, error) {
	if !o.all && len(o.clusters) == 0 {
		return nil, nil
	}
	c, err := o.flags.LoadClusterConnection()
	if err != nil {
		return nil, err
	}
	if !o.all {
		for _, name := range o.clusters {
			if _, err := client.Get[v1alpha1.Cluster](ctx, c, client.Clusters, "", name); err != nil {
				return nil, err
			}
		}
		slices.Sort(o.clusters)
		return slices.Compact(o.clusters), nil
	}
	all, err := client.List[v1alpha1.Cluster](ctx, c, client.Clusters, "", metav1.ListOptions{LabelSelector: o.selector})
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range all {
		if all[i].Spec.Accepted && all[i].Spec.CheckInInterval() == 0 {
			names = append(names, all[i].Name)
		}
	}
	if len(names) == 0 {
		return nil, errors.New("there is no such cluster that is accepted and holds a stream; see `atoll get clusters`")
	}
	return names, nil
}

// buildMemberOrHubKubeconfig is a kubeconfig of the members, or of the hub where no member is named.
func buildMemberOrHubKubeconfig(hub *clientcmdapi.Config, context string, members []string, prefix string) *clientcmdapi.Config {
	of := hub.Contexts[context]
	out := clientcmdapi.NewConfig()
	if user := hub.AuthInfos[of.AuthInfo]; user != nil {
		out.AuthInfos[of.AuthInfo] = user
	}
	if len(members) == 0 {
		out.Clusters[of.Cluster] = hub.Clusters[of.Cluster]
		out.Contexts[context], out.CurrentContext = of, context
		return out
	}
	for _, name := range members {
		server := hub.Clusters[of.Cluster].DeepCopy()
		server.Server = strings.TrimSuffix(server.Server, "/") + atoll.ClusterProxyPath(name)
		out.Clusters[prefix+name] = server
		out.Contexts[prefix+name] = &clientcmdapi.Context{Cluster: prefix + name, AuthInfo: of.AuthInfo}
	}
	if len(members) == 1 {
		out.CurrentContext = prefix + members[0]
	}
	return out
}

// mergeKubeconfig merges into the kubeconfig in use. Names of other origin are not changed.
func mergeKubeconfig(cmd *cobra.Command, rules *clientcmd.ClientConfigLoadingRules, made *clientcmdapi.Config, members []string, prefix string) error {
	if len(members) == 0 {
		return errors.New("--merge adds contexts of members: name them by --cluster, or give --all")
	}
	have, err := rules.GetStartingConfig()
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	for name, c := range made.Clusters {
		if old := have.Clusters[name]; old != nil && old.Server != c.Server {
			return fmt.Errorf("the kubeconfig has another cluster called %q, at %s; give --prefix for other names", name, old.Server)
		}
		if old := have.Contexts[name]; old != nil && old.Cluster != name {
			return fmt.Errorf("the kubeconfig has another context called %q; give --prefix for other names", name)
		}
		have.Clusters[name] = c
		have.Contexts[name] = made.Contexts[name]
	}
	if err := clientcmd.ModifyConfig(rules, *have, false); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s written to %s; use one with: kubectl --context %s get nodes\n", phrase.CountNoun(len(members), "context"), rules.GetDefaultFilename(), prefix+members[0])
	return err
}
