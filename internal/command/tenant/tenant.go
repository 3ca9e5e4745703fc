// Package tenant holds the commands `atoll tenant create|list|delete`: what a team needs to use
// the hub, made and taken back in one go.
//
// Contract: create may be repeated, and completes what exists; each call gives a new token and
// takes none back. Its objects carry the label atoll.dev/tenant. A namespace without the label is
// never taken over.
package tenant

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
	"atoll.dev/atoll/internal/phrase"
)

// NewCommand makes the command.
func NewCommand(flags *client.ConnectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tenant",
		Short: "Give teams a namespace, the right to place, and a kubeconfig",
	}
	cmd.AddCommand(newCreateTenantCommand(flags), newListTenantsCommand(flags), newDeleteTenantCommand(flags))
	return cmd
}

func newCreateTenantCommand(flags *client.ConnectionFlags) *cobra.Command {
	var s tenantSpec
	var file string
	cmd := &cobra.Command{
		Use:   "create NAME --set SET",
		Short: "Make a namespace in which a team may place on a set of clusters",
		Long: `Make a namespace in which a team may place on a set of clusters, and write a
kubeconfig for it.

It makes, or brings up to date: the namespace; bindings to the cluster sets, and to
no others; RoleBindings to the shipped roles atoll:application-team and atoll:viewer;
and a ServiceAccount in atoll-system, whose token is in the kubeconfig. The token
ends after --lifetime; run the command again for a new one. A token of one's own
ends at once with "atoll tenant delete".`,
		Example: `  atoll tenant create shop --set asia
  atoll tenant create shop --set asia --set europe --group shop-developers --viewer-group support --lifetime 8h`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.name = args[0]
			if s.namespace == "" {
				s.namespace = s.name
			}
			if err := s.validate(); err != nil {
				return err
			}
			c, err := flags.LoadClusterConnection()
			if err != nil {
				return err
			}
			made, err := createTenant(cmd.Context(), c, s)
			if err != nil {
				return err
			}
			file, err = client.WriteKubeconfig(cmd.OutOrStdout(), file, s.name, made.kubeconfig)
			if err != nil || file == "" {
				return err
			}
			return printCreatedTenant(cmd.OutOrStdout(), s, file, made)
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.namespace, "namespace", "", "the tenant's namespace (default: NAME)")
	f.StringSliceVar(&s.sets, "set", nil, "cluster sets that it may place on, at least one (required)")
	f.StringSliceVar(&s.users, "user", nil, "users that may work in it")
	f.StringSliceVar(&s.groups, "group", nil, "groups that may work in it")
	f.StringSliceVar(&s.viewers, "viewer-group", nil, "groups that may look at it")
	f.DurationVar(&s.lifetime, "lifetime", client.DefaultLifetime, "how long the kubeconfig is good for, at least 10m")
	f.StringVar(&s.server, "server", "", "address of the hub in the kubeconfig (default: as in yours)")
	f.StringVar(&file, "out", "", "file for the kubeconfig, - for standard output (default: NAME.kubeconfig)")
	return cmd
}

func printCreatedTenant(out io.Writer, s tenantSpec, file string, m createdTenant) error {
	if m.byDefault != "" {
		m.byDefault += "\n"
	}
	_, err := fmt.Fprintf(out, `Tenant %s works in namespace %s and may place on %s.
%s
  %s is its kubeconfig, good until %s.
  "atoll tenant create" with the same arguments makes a new one.
`, s.name, s.namespace, strings.Join(s.sets, ", "), m.byDefault, file, phrase.FormatTime(m.expires))
	return err
}

// listedTenant is a tenant as `atoll tenant list` shows it.
type listedTenant struct {
	Name      string   `json:"name"`
	Namespace string   `json:"namespace"`
	Sets      []string `json:"sets"`
	// Subjects that may work in it, as Kind/name.
	Subjects []string `json:"subjects"`
	// State: Active, NoAccess once its access was taken away, or Terminating while its
	// namespace is being deleted.
	State string `json:"state"`
}

func newListTenantsCommand(flags *client.ConnectionFlags) *cobra.Command {
	var format output.Format
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the tenants, where they may place, and their users",
		Long: `Show the tenants, where they may place, and their users.

STATE is Active, NoAccess after "atoll tenant delete", which leaves the namespace and what
runs, and Terminating while the namespace itself is being deleted.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.LoadClusterConnection()
			if err != nil {
				return err
			}
			all, err := listTenants(cmd.Context(), c)
			if err != nil {
				return err
			}
			if done, err := format.PrintStructured(cmd.OutOrStdout(), all); done {
				return err
			}
			if len(all) == 0 {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "no tenants; `atoll tenant create` makes one")
				return err
			}
			table := output.NewTable(cmd.OutOrStdout(), "TENANT", "NAMESPACE", "STATE", "SETS", "USERS")
			for _, t := range all {
				table.AddRow(t.Name, t.Namespace, t.State, strings.Join(t.Sets, ","), strings.Join(t.Subjects, ","))
			}
			return table.Flush()
		},
	}
	format.AddTo(cmd.Flags(), "json", "yaml")
	return cmd
}

// teamSubjects lists the subjects of a namespace's team.
func teamSubjects(namespace string, roles []rbacv1.RoleBinding) (out []string) {
	for _, r := range roles {
		if r.Namespace != namespace || r.Name != teamBinding {
			continue
		}
		for _, s := range r.Subjects {
			out = append(out, s.Kind+"/"+s.Name)
		}
	}
	return out
}

func listTenants(ctx context.Context, c *client.Connection) ([]listedTenant, error) {
	namespaces, err := client.List[corev1.Namespace](ctx, c, client.Namespaces, "", metav1.ListOptions{LabelSelector: atoll.LabelTenant})
	if err != nil {
		return nil, err
	}
	bindings, err := client.List[v1alpha1.ClusterSetBinding](ctx, c, client.ClusterSetBindings, metav1.NamespaceAll, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	roles, err := client.List[rbacv1.RoleBinding](ctx, c, client.RoleBindings, metav1.NamespaceAll, metav1.ListOptions{LabelSelector: atoll.LabelTenant})
	if err != nil {
		return nil, err
	}
	out := make([]listedTenant, 0, len(namespaces))
	for _, ns := range namespaces {
		t := listedTenant{Name: ns.Labels[atoll.LabelTenant], Namespace: ns.Name, Subjects: teamSubjects(ns.Name, roles)}
		for _, b := range bindings {
			if b.Namespace == ns.Name {
				t.Sets = append(t.Sets, b.Spec.ClusterSet)
			}
		}
		slices.Sort(t.Sets)
		switch {
		case ns.DeletionTimestamp != nil:
			t.State = "Terminating"
		case len(t.Subjects) == 0:
			t.State = "NoAccess"
		default:
			t.State = "Active"
		}
		out = append(out, t)
	}
	return out, nil
}

func newDeleteTenantCommand(flags *client.ConnectionFlags) *cobra.Command {
	var withNamespace bool
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Take a tenant's access away; what it runs stays",
		Long: `Take a tenant's access away: its ServiceAccount, so that its kubeconfigs end at
once, and its RoleBindings. What it runs stays, and so does its namespace, which
--with-namespace deletes too: then all that it placed is removed from the clusters,
under the removal budget.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := flags.LoadClusterConnection()
			if err != nil {
				return err
			}
			return removeTenant(cmd.Context(), c, args[0], withNamespace, cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&withNamespace, "with-namespace", false, "delete the namespace too, with all that it placed")
	return cmd
}

func removeTenant(ctx context.Context, c *client.Connection, name string, withNamespace bool, out io.Writer) error {
	namespaces, err := client.List[corev1.Namespace](ctx, c, client.Namespaces, "", metav1.ListOptions{LabelSelector: atoll.LabelTenant + "=" + name})
	if err != nil {
		return err
	}
	if len(namespaces) == 0 {
		return fmt.Errorf("there is no tenant %q; `atoll tenant list` shows them", name)
	}
	err = c.Dynamic.Resource(client.ServiceAccounts).Namespace(atoll.SystemNamespace).Delete(ctx, serviceAccountName(name), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return c.ExplainError(err)
	}
	var errs []error
	for _, ns := range namespaces {
		for _, binding := range []string{teamBinding, viewerBinding} {
			if err := c.Dynamic.Resource(client.RoleBindings).Namespace(ns.Name).Delete(ctx, binding, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				errs = append(errs, c.ExplainError(err))
			}
		}
		if !withNamespace {
			fmt.Fprintf(out, "tenant %s has no access any more; namespace %s and what it placed stay\n", name, ns.Name)
			continue
		}
		if err := c.Dynamic.Resource(client.Namespaces).Delete(ctx, ns.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, c.ExplainError(err))
			continue
		}
		fmt.Fprintf(out, "tenant %s is deleted; what it placed goes with namespace %s\n", name, ns.Name)
	}
	return errors.Join(errs...)
}
