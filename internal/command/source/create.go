package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
	"atoll.dev/atoll/internal/policymatch"
	"atoll.dev/atoll/internal/sources/changes"
)

// teamRole is the shipped role that the ServiceAccount of Sources gets in their namespace.
const teamRole = "atoll:application-team"

type createOptions struct {
	flags                    *client.ConnectionFlags
	format                   output.Format
	name, repository         string
	ref                      v1alpha1.SourceRef
	paths, exclude           []string
	clusters, placement      string
	targetNamespace, account string
	secret, caFile, webhook  string
	tokenHost                string
	interval                 time.Duration
	keep, force, yes, dryRun bool
	correctDrift             bool
	build                    buildFlags
	ssh                      sshFlags
	verify                   verifyFlags
}

// createHelp is the end of the long text of each command that makes a Source.
const createHelp = `

The command shows the objects that it makes, and waits for a yes. --yes makes them at once. They are a Repository, a
Source, and where it is missing the ServiceAccount atoll-sources with the role atoll:application-team in the
namespace, by whose rights the Source writes. --service-account names another one.

--clusters chooses clusters by their labels, and --placement names a Placement. Without both, the policies and
annotations of the hub place the objects. A Repository of the same name and URL is used by several Sources.`

func newCreateGitCommand(flags *client.ConnectionFlags) *cobra.Command {
	o := &createOptions{flags: flags}
	cmd := o.newCommand(&v1alpha1.RepositorySpec{Git: &v1alpha1.GitRepository{}}, &cobra.Command{
		Use:   "git URL --name NAME [-n NAMESPACE] [--branch BRANCH] [--path PATH...] [--clusters LABELS]",
		Short: "Make a Source of a git repository, with a preview first",
		Long: `Make a Source of a git repository, with a preview first.` + createHelp + `

The hub finds out of a path's files whether it is a Helm chart, a kustomization or a directory of objects. --values
and the flags after it are for a chart. atoll source render shows the objects.

A URL ssh://USER@HOST/PATH, or USER@HOST:PATH, needs a private key and the keys of the server: --identity-file and
--known-hosts-file make a Secret of them, which stays on the hub. --secret names one with identity and known_hosts.

With --trusted-keys-file or --trusted-keys-secret, only commits and tags that one of the keys signed are applied.`,

		Example: `  atoll source create git https://git.example.com/shop.git --name shop -n shop --path deploy --clusters env=prod
  atoll source create git https://git.example.com/shop.git --name shop -n shop --tag v1.4.0 --secret git-token --yes
  atoll source create git git@git.example.com:shop/deploy.git --name shop -n shop --identity-file deploy-key --known-hosts-file known_hosts
  atoll source create git https://git.example.com/shop.git --name shop -n shop --trusted-keys-file allowed_signers`,
	})
	f := cmd.Flags()
	f.StringVar(&o.ref.Branch, "branch", "", "branch (default: main)")
	f.StringVar(&o.ref.Tag, "tag", "", "tag")
	f.StringVar(&o.ref.Commit, "commit", "", "full hash of a commit")
	f.StringSliceVar(&o.paths, "path", nil, "directory or file of the repository; may be given more than once (default: all)")
	cmd.MarkFlagsMutuallyExclusive("branch", "tag", "commit")
	o.ssh.addTo(cmd)
	o.build.addType(f)
	return cmd
}

func newCreateHelmCommand(flags *client.ConnectionFlags) *cobra.Command {
	o := &createOptions{flags: flags}
	cmd := o.newCommand(&v1alpha1.RepositorySpec{Helm: &v1alpha1.HelmRepository{}}, &cobra.Command{
		Use:   "helm URL --chart NAME --version RANGE --name NAME [-n NAMESPACE] [--values FILE] [--clusters LABELS]",
		Short: "Make a Source of a chart of a Helm repository, with a preview first",
		Long: `Make a Source of a chart of a Helm repository, with a preview first.

The URL is that of a directory with an index.yaml, or oci://HOST/PATH of a registry that has the chart below the path.
--version is an exact version, or a range such as '>=1.4 <2' of which the hub takes the latest.` + createHelp + `

With --trusted-keys-file or --trusted-keys-secret, only a chart that one of the keys signed is applied: by cosign in a
registry, by a key in PEM, or by a provenance file of Helm with --verify Provenance, by a key of OpenPGP.`,
		Example: `  atoll source create helm https://charts.example.com --chart shop --version 1.4.2 --name shop -n shop --clusters env=prod
  atoll source create helm oci://registry.example.com/charts --chart shop --version '1.x' --name shop -n shop --values prod.yaml
  atoll source create helm oci://registry.example.com/charts --chart shop --version '1.x' --name shop -n shop --trusted-keys-file cosign.pub`,
	})
	f := cmd.Flags()
	o.addTokenHost(f)
	f.StringVar(&o.ref.Chart, "chart", "", "name of the chart (required)")
	f.StringVar(&o.ref.Version, "version", "", "version of the chart, or a range; * for the latest (required)")
	for _, name := range []string{"chart", "version"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err)
		}
	}
	return cmd
}

func newCreateOCICommand(flags *client.ConnectionFlags) *cobra.Command {
	o := &createOptions{flags: flags}
	cmd := o.newCommand(&v1alpha1.RepositorySpec{OCI: &v1alpha1.OCIRepository{}}, &cobra.Command{
		Use:   "oci URL (--tag TAG | --version RANGE | --digest DIGEST) --name NAME [-n NAMESPACE] [--path PATH...] [--clusters LABELS]",
		Short: "Make a Source of an OCI artifact, with a preview first",
		Long: `Make a Source of an OCI artifact, with a preview first.

The URL is oci://HOST/PATH of a repository in a registry. Its artifacts have files, as flux push artifact and oras push make
them. The hub reads them as it reads those of a commit.` + createHelp + `

With --trusted-keys-file or --trusted-keys-secret, only an artifact that one of the keys signed by cosign is applied.`,
		Example: `  atoll source create oci oci://registry.example.com/shop/deploy --tag latest --name shop -n shop --clusters env=prod
  atoll source create oci oci://registry.example.com/shop/deploy --version '1.x' --name shop -n shop --path prod --yes
  atoll source create oci oci://registry.example.com/shop/deploy --tag latest --name shop -n shop --trusted-keys-file cosign.pub`,
	})
	f := cmd.Flags()
	o.addTokenHost(f)
	f.StringVar(&o.ref.Tag, "tag", "", "tag, which is followed")
	f.StringVar(&o.ref.Version, "version", "", "version that a tag is, or a range; * for the latest")
	f.StringVar(&o.ref.Digest, "digest", "", "digest of a manifest, such as sha256:HEX")
	f.StringSliceVar(&o.paths, "path", nil, "directory or file of the artifact; may be given more than once (default: all)")
	cmd.MarkFlagsMutuallyExclusive("tag", "version", "digest")
	cmd.MarkFlagsOneRequired("tag", "version", "digest")
	o.build.addType(f)
	return cmd
}

// addTokenHost adds the flag of registries that have their tokens from another host.
func (o *createOptions) addTokenHost(f *pflag.FlagSet) {
	f.StringVar(&o.tokenHost, "token-host", "", "other host from which the registry has its tokens, and which gets the credentials of --secret too (default: that of docker.io and registry.gitlab.com)")
}

// newCommand completes a command that makes a Source of a Repository of a type, by the flags of all types.
func (o *createOptions) newCommand(spec *v1alpha1.RepositorySpec, cmd *cobra.Command) *cobra.Command {
	cmd.Args = cobra.ExactArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return o.run(cmd, spec, normalizeURL(spec, args[0])) }
	f := cmd.Flags()
	o.flags.AddNamespace(f)
	f.StringVar(&o.name, "name", "", "name of the Source (required)")
	f.StringVar(&o.repository, "repository", "", "name of the Repository (default: that of the Source)")
	f.StringSliceVar(&o.exclude, "exclude", nil, "pattern of files that are not read; may be given more than once")
	f.StringVar(&o.clusters, "clusters", "", "labels of the clusters, such as env=prod,region in (eu,us); * for all")
	f.StringVar(&o.placement, "placement", "", "Placement of the namespace that chooses the clusters")
	f.StringVar(&o.targetNamespace, "target-namespace", "", "namespace of objects that state none (default: that of the Source)")
	f.StringVar(&o.account, "service-account", "", "ServiceAccount by whose rights the Source writes (default: atoll-sources)")
	f.StringVar(&o.secret, "secret", "", "Secret of the namespace with username and password, or token; for ssh:// with identity and known_hosts")
	f.StringVar(&o.webhook, "webhook-secret", "", "Secret of the namespace whose key token verifies webhooks of the server")
	f.StringVar(&o.caFile, "ca-file", "", "file with the CAs of the server, in PEM")
	f.DurationVar(&o.interval, "interval", 0, "time between two checks, from 30s to 24h (default: 5m)")
	f.BoolVar(&o.keep, "keep", false, "keep objects that a later content drops")
	f.BoolVar(&o.force, "force", false, "take fields over that others own")
	f.BoolVar(&o.correctDrift, "correct-drift", false, "apply objects again that others change or delete on the hub (default: report them)")
	f.BoolVarP(&o.yes, "yes", "y", false, "make it without a prompt")
	f.BoolVar(&o.dryRun, "dry-run", false, "only show what would be made")
	cmd.MarkFlagsMutuallyExclusive("clusters", "placement")
	cmd.MarkFlagsMutuallyExclusive("dry-run", "yes")
	if err := cmd.MarkFlagRequired("name"); err != nil {
		panic(err)
	}
	o.build.addTo(f)
	o.verify.addTo(cmd, changes.Place{Type: changes.PlaceOf(spec).Type, URL: "oci://"}.VerificationModes())
	o.format.AddTo(f, "json", "yaml")
	return cmd
}

func (o *createOptions) run(cmd *cobra.Command, spec *v1alpha1.RepositorySpec, url string) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	c, err := o.flags.LoadClusterConnection()
	if err != nil {
		return err
	}
	made, err := o.newObjects(ctx, c, spec, url)
	if err != nil {
		return err
	}
	if err := createObjects(ctx, c, made, true); err != nil {
		return err
	}
	structured, err := o.printPreview(out, c.Namespace, made)
	if err != nil || structured && !o.yes || o.dryRun {
		return err
	}
	if ok, err := o.isConfirmed(cmd); err != nil || !ok {
		return err
	}
	if err := createObjects(ctx, c, made, false); err != nil || structured {
		return err
	}
	_, err = fmt.Fprintf(out, "made; follow it with: atoll source get %s -n %s\n", o.name, c.Namespace)
	return err
}

// isConfirmed reports whether --yes or a person on the terminal confirms.
func (o *createOptions) isConfirmed(cmd *cobra.Command) (bool, error) {
	switch {
	case o.yes:
		return true, nil
	case !output.IsTerminal(cmd.InOrStdin()):
		return false, errors.New("nothing is made yet: --yes makes it")
	}
	return output.AskPerson(cmd.InOrStdin(), cmd.OutOrStdout(), "Make it?")
}

// madeObject is an object that the command makes.
type madeObject struct {
	resource schema.GroupVersionResource
	object   *unstructured.Unstructured
	about    string
}

// newObjects returns the objects that are missing.
func (o *createOptions) newObjects(ctx context.Context, c *client.Connection, spec *v1alpha1.RepositorySpec, url string) ([]madeObject, error) {
	var out []madeObject
	if o.account == "" {
		account, err := o.newAccount(ctx, c)
		if err != nil {
			return nil, err
		}
		out = account
	}
	identity, err := o.newIdentity(url)
	if err != nil {
		return nil, err
	}
	place := changes.Place{Type: changes.PlaceOf(spec).Type, URL: url}
	signers, err := o.newTrustedKeys(place)
	if err != nil {
		return nil, err
	}
	repo, err := o.newRepository(ctx, c, spec, url)
	if err != nil {
		return nil, err
	}
	if err := o.checkExisting(repo, url); err != nil {
		return nil, err
	}
	for _, secret := range []*madeObject{identity, signers} {
		if secret != nil {
			out = append(out, *secret)
		}
	}
	if repo != nil {
		out = append(out, madeObject{repositories, convertObject(repo, "Repository"), url})
	}
	s, err := o.newSource(c.Namespace)
	if err != nil {
		return nil, err
	}
	return append(out, madeObject{sources, convertObject(s, "Source"), o.describeSource()}), nil
}

// newAccount returns the ServiceAccount of Sources and its role. In the namespace of a tenant the
// account has the role already.
func (o *createOptions) newAccount(ctx context.Context, c *client.Connection) (out []madeObject, err error) {
	ns, err := client.Get[corev1.Namespace](ctx, c, client.Namespaces, "", c.Namespace)
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	keepOnHub := map[string]string{atoll.AnnotationClusters: ""} // no cluster
	if _, err := c.Dynamic.Resource(client.ServiceAccounts).Namespace(c.Namespace).Get(ctx, v1alpha1.DefaultSourceAccount, metav1.GetOptions{}); err == nil {
		return nil, nil
	} else if !apierrors.IsNotFound(err) {
		return nil, c.ExplainError(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.DefaultSourceAccount, Namespace: c.Namespace, Annotations: keepOnHub}}
	out = append(out, madeObject{client.ServiceAccounts, convertTyped(account, "v1", "ServiceAccount"), "by whose rights Sources of the namespace write"})
	if ns != nil && ns.Labels[atoll.LabelTenant] != "" {
		return out, nil
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.DefaultSourceAccount, Namespace: c.Namespace, Annotations: keepOnHub},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: teamRole},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: v1alpha1.DefaultSourceAccount, Namespace: c.Namespace}},
	}
	return append(out, madeObject{client.RoleBindings, convertTyped(binding, rbacv1.SchemeGroupVersion.String(), "RoleBinding"), teamRole + " in this namespace"}), nil
}

// newRepository returns the Repository of the type that a spec states; nil when there is one of the same name and place.
func (o *createOptions) newRepository(ctx context.Context, c *client.Connection, spec *v1alpha1.RepositorySpec, url string) (*v1alpha1.Repository, error) {
	if o.repository == "" {
		o.repository = o.name
	}
	existing, err := client.Get[v1alpha1.Repository](ctx, c, repositories, c.Namespace, o.repository)
	if err == nil {
		at := changes.PlaceOf(&existing.Spec)
		if at.URL != url || at.Type != changes.PlaceOf(spec).Type {
			return nil, fmt.Errorf("the Repository %s is there, with the URL %s of the type %s: name another one with --repository", o.repository, at.URL, at.Type)
		}
		return nil, nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, err
	}
	repo := &v1alpha1.Repository{ObjectMeta: metav1.ObjectMeta{Name: o.repository, Namespace: c.Namespace}, Spec: *spec}
	if err := o.setPlace(&repo.Spec, url); err != nil {
		return nil, err
	}
	repo.Spec.Verify = o.verify.newVerification(changes.PlaceOf(&repo.Spec))
	if o.webhook != "" {
		repo.Spec.Webhook = &v1alpha1.RepositoryWebhook{SecretRef: v1alpha1.RepositorySecretRef{Name: o.webhook}}
	}
	if o.interval != 0 {
		repo.Spec.Interval = &metav1.Duration{Duration: o.interval}
	}
	return repo, nil
}

// setPlace states where the content is, in the type that a spec has.
func (o *createOptions) setPlace(spec *v1alpha1.RepositorySpec, url string) error {
	var secret *v1alpha1.RepositorySecretRef
	if o.secret != "" {
		secret = &v1alpha1.RepositorySecretRef{Name: o.secret}
	}
	bundle := ""
	if o.caFile != "" {
		text, err := os.ReadFile(o.caFile)
		if err != nil {
			return fmt.Errorf("--ca-file: %w", err)
		}
		bundle = string(text)
	}
	switch {
	case spec.Git != nil:
		spec.Git = &v1alpha1.GitRepository{URL: url, SecretRef: secret, CABundle: bundle}
	case spec.Helm != nil:
		spec.Helm = &v1alpha1.HelmRepository{URL: url, SecretRef: secret, CABundle: bundle, TokenHost: o.tokenHost}
	case spec.OCI != nil:
		spec.OCI = &v1alpha1.OCIRepository{URL: url, SecretRef: secret, CABundle: bundle, TokenHost: o.tokenHost}
	}
	return nil
}

func (o *createOptions) newSource(namespace string) (*v1alpha1.Source, error) {
	s := &v1alpha1.Source{ObjectMeta: metav1.ObjectMeta{Name: o.name, Namespace: namespace}}
	s.Spec = v1alpha1.SourceSpec{
		Repository: o.repository, Ref: o.ref, Paths: o.paths, Exclude: o.exclude,
		TargetNamespace: o.targetNamespace, ServiceAccountName: o.account, Force: o.force,
	}
	if s.Spec.Ref == (v1alpha1.SourceRef{}) { // of git: the other types need one
		s.Spec.Ref.Branch = "main"
	}
	build, err := o.build.newBuild()
	if err != nil {
		return nil, err
	}
	s.Spec.Build = build
	if o.keep {
		s.Spec.Prune = v1alpha1.PruneKeep
	}
	if o.correctDrift {
		s.Spec.Drift = &v1alpha1.SourceDrift{Mode: v1alpha1.SourceDriftCorrect}
	}
	if o.placement != "" {
		s.Spec.PlacementRef = &v1alpha1.PlacementRef{Name: o.placement}
	}
	if o.clusters == "" {
		return s, nil
	}
	text := o.clusters
	if text != "*" {
		text = "selector: " + text
	}
	placement, err := policymatch.ParseClustersAnnotation(text)
	if err != nil {
		return nil, fmt.Errorf("--clusters: %w", err)
	}
	s.Spec.Placement = &placement
	return s, nil
}

// describeSource returns what the Source reads, and where the objects go.
func (o *createOptions) describeSource() string {
	ref := "branch main"
	for kind, name := range map[string]string{"branch ": o.ref.Branch, "tag ": o.ref.Tag, "commit ": o.ref.Commit, "version ": o.ref.Version, "digest ": o.ref.Digest} {
		if name != "" {
			ref = kind + name
		}
	}
	what, to := "all files of "+ref, "where policies and annotations of the hub place them"
	switch {
	case o.ref.Chart != "":
		what = "chart " + o.ref.Chart + " " + o.ref.Version
	case len(o.paths) > 0:
		what = strings.Join(o.paths, ", ") + " of " + ref
	}
	switch {
	case o.placement != "":
		to = "to the clusters of placement/" + o.placement
	case o.clusters == "*":
		to = "to all clusters"
	case o.clusters != "":
		to = "to the clusters with " + o.clusters
	}
	return what + ", " + to
}

func convertObject(o runtime.Object, kind string) *unstructured.Unstructured {
	return convertTyped(o, v1alpha1.GroupVersion.String(), kind)
}

func convertTyped(o runtime.Object, apiVersion, kind string) *unstructured.Unstructured {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic(fmt.Sprintf("source: an object cannot be converted: %v", err))
	}
	delete(fields, "status")
	unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
	u := &unstructured.Unstructured{Object: fields}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	return u
}

// createObjects creates objects, or only has the hub check them.
func createObjects(ctx context.Context, c *client.Connection, made []madeObject, dryRun bool) error {
	options := metav1.CreateOptions{FieldManager: atoll.CLIFieldManager}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	for _, m := range made {
		if _, err := c.Dynamic.Resource(m.resource).Namespace(c.Namespace).Create(ctx, m.object, options); err != nil {
			return fmt.Errorf("make %s %s: %w", m.object.GetKind(), m.object.GetName(), c.ExplainError(err))
		}
	}
	return nil
}

// printPreview prints the objects; done is true when they are printed for programs.
func (o *createOptions) printPreview(out io.Writer, namespace string, made []madeObject) (done bool, err error) {
	objects := make([]map[string]any, 0, len(made))
	for _, m := range made {
		objects = append(objects, hideSecretValues(m.object))
	}
	if done, err := o.format.PrintStructured(out, objects); done || err != nil {
		return done, err
	}
	if _, err := fmt.Fprintf(out, "in namespace %s:\n", namespace); err != nil {
		return false, err
	}
	for _, m := range made {
		if _, err := fmt.Fprintf(out, "  + %s/%s: %s\n", strings.ToLower(m.object.GetKind()), m.object.GetName(), m.about); err != nil {
			return false, err
		}
	}
	return false, nil
}
