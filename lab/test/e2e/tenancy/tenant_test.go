package tenancy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/command"
	"atoll.dev/atoll/internal/testwait"
)

// atollAs runs the CLI with a kubeconfig and gives what it printed.
func atollAs(ctx context.Context, kubeconfig string, args ...string) (string, error) {
	root := command.NewRootCommand()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append(args, "--kubeconfig", kubeconfig))
	err := root.ExecuteContext(ctx)
	return out.String(), err
}

func atollOK(t *testing.T, args ...string) string {
	t.Helper()
	out, err := atollAs(t.Context(), testHub.kubeconfig, args...)
	if err != nil {
		t.Fatalf("atoll %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func bindingsOf(t *testing.T, ns string) (sets []string) {
	t.Helper()
	var list v1alpha1.ClusterSetBindingList
	if err := clientAs(t, "").List(t.Context(), &list, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	for _, b := range list.Items {
		sets = append(sets, b.Spec.ClusterSet)
	}
	return sets
}

// clientOf returns a client of a kubeconfig file.
func clientOf(t *testing.T, file string) client.Client {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t, config)
}

// expectGoodForAnHour checks until when a kubeconfig is good, as a command prints that began at a time.
// Times are printed in seconds.
func expectGoodForAnHour(t *testing.T, out string, began time.Time) {
	t.Helper()
	const lifetime = time.Hour
	_, text, _ := strings.Cut(out, "good until ")
	text, _, _ = strings.Cut(text, "Z")
	until, err := time.Parse(time.RFC3339, text+"Z")
	if err != nil || until.Unix() < began.Add(lifetime).Unix() || until.Unix() > time.Now().Add(lifetime).Unix() {
		t.Errorf("good until %s (%v), and not an hour from %s on:\n%s", until, err, began.UTC(), out)
	}
}

func TestTenantFromBeginToEnd(t *testing.T) {
	apply(t, set("tenant-a", "{}")+"\n---\n"+set("tenant-b", "{}"))
	t.Cleanup(func() {
		_, _ = atollAs(context.WithoutCancel(t.Context()), testHub.kubeconfig, "tenant", "delete", "crew", "--with-namespace")
	})
	file := filepath.Join(t.TempDir(), "crew.kubeconfig")
	made := []string{"tenant", "create", "crew", "--set", "tenant-a", "--group", "sailors", "--out", file, "--lifetime", "1h"}
	for range 2 { // it may be repeated
		began := time.Now()
		out := atollOK(t, made...)
		expectGoodForAnHour(t, out, began)
		for _, want := range []string{"namespace crew", "tenant-a", file} {
			if !strings.Contains(out, want) {
				t.Errorf("it does not contain %q:\n%s", want, out)
			}
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig is for others to read: %v %v", info.Mode(), err)
	}
	if got := bindingsOf(t, "crew"); !slices.Equal(got, []string{"tenant-a"}) {
		t.Errorf("bound to %q", got)
	}

	crew := clientOf(t, file)
	here := &corev1.ConfigMap{}
	here.Name, here.Namespace = "log", "crew"
	testwait.UntilNil(t, "the kubeconfig works in its namespace", func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(crew.Create(ctx, here))
	})
	p := decodeObjects(t, placingPolicy("crew", "{}"))[0]
	testwait.UntilNil(t, "it places there", func(ctx context.Context) error { return crew.Create(ctx, p, client.DryRunAll) })
	for name, o := range map[string]client.Object{
		"another namespace":      &corev1.ConfigMap{},
		"the hub's namespace":    &corev1.Secret{},
		"its own roles":          &rbacv1.RoleBinding{},
		"its own right to place": &v1alpha1.ClusterSetBinding{Spec: v1alpha1.ClusterSetBindingSpec{ClusterSet: "tenant-b"}},
	} {
		o.SetName("tenant-b")
		o.SetNamespace(map[bool]string{true: "crew", false: "atoll-system"}[strings.HasPrefix(name, "its own")])
		if err := crew.Create(t.Context(), o, client.DryRunAll); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", name, err)
		}
	}

	atollOK(t, "tenant", "create", "crew", "--set", "tenant-b", "--out", file)
	if got := bindingsOf(t, "crew"); !slices.Equal(got, []string{"tenant-b"}) {
		t.Errorf("bound to %q after it was made with another set", got)
	}
	var tenants []struct {
		Name, Namespace string
		Sets, Subjects  []string
	}
	if err := json.Unmarshal([]byte(atollOK(t, "tenant", "list", "-o", "json")), &tenants); err != nil {
		t.Fatal(err)
	}
	if len(tenants) != 1 || tenants[0].Name != "crew" || tenants[0].Namespace != "crew" ||
		!slices.Equal(tenants[0].Sets, []string{"tenant-b"}) || !slices.Equal(tenants[0].Subjects, []string{"ServiceAccount/tenant-crew", "ServiceAccount/atoll-sources"}) {
		t.Errorf("tenants: %+v", tenants)
	}
	if out := atollOK(t, "tenant", "list"); !strings.Contains(out, "tenant-b") {
		t.Errorf("the table has no set:\n%s", out)
	}

	if out := atollOK(t, "tenant", "delete", "crew"); !strings.Contains(out, "namespace crew and what it placed stay") {
		t.Errorf("it does not name the remaining objects: %s", out)
	}
	testwait.UntilNil(t, "the kubeconfig ends", func(ctx context.Context) error {
		if err := crew.Get(ctx, client.ObjectKeyFromObject(here), here); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("it is answered: %v", err)
		}
		return nil
	})
	if err := clientAs(t, "").Get(t.Context(), client.ObjectKeyFromObject(here), here); err != nil {
		t.Errorf("what the tenant wrote is gone: %v", err)
	}
	atollOK(t, "tenant", "delete", "crew", "--with-namespace")
	testwait.UntilNil(t, "the namespace goes", func(ctx context.Context) error {
		err := clientAs(t, "").Get(ctx, client.ObjectKey{Name: "crew"}, &corev1.Namespace{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %v", err)
		}
		return nil
	})
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// writeImpersonation writes a kubeconfig by which the administrator acts as another user.
func writeImpersonation(t *testing.T, file, user string, groups ...string) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(testHub.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range config.AuthInfos {
		info.Impersonate, info.ImpersonateGroups = user, append(groups, "system:authenticated")
	}
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
}

// A user with only the role of a fleet admin can make a tenant.
func TestFleetAdminMakesTenants(t *testing.T) {
	apply(t, set("fleet-a", "{}"))
	file := filepath.Join(t.TempDir(), "admin.kubeconfig")
	writeImpersonation(t, file, "fay", "atoll:fleet-admins")
	t.Cleanup(func() {
		_, _ = atollAs(context.WithoutCancel(t.Context()), testHub.kubeconfig, "tenant", "delete", "fleet", "--with-namespace")
	})
	testwait.UntilNil(t, "a fleet admin makes a tenant", func(ctx context.Context) error {
		_, err := atollAs(ctx, file, "tenant", "create", "fleet", "--set", "fleet-a", "--out", filepath.Join(t.TempDir(), "fleet.kubeconfig"))
		return err
	})
	for _, args := range [][]string{{"tenant", "list"}, {"token", "create", "--set", "fleet-a"}, {"get", "clusters"}, {"tenant", "delete", "fleet", "--with-namespace"}} {
		if out, err := atollAs(t.Context(), file, args...); err != nil && !strings.Contains(err.Error(), "hub-info") {
			t.Errorf("atoll %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

func TestTenantErrorsNameTheRemedy(t *testing.T) {
	apply(t, set("errors-a", "{}"))
	apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: taken}}")
	apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: anothers, labels: {atoll.dev/tenant: another}}}")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no set":               {[]string{"create", "x"}, "--set; `kubectl get clustersets` lists"},
		"a set that is not":    {[]string{"create", "x", "--set", "nosuch"}, `no cluster set "nosuch"; ` + "`kubectl get clustersets` lists"},
		"a malformed name":     {[]string{"create", "A_b", "--set", "errors-a"}, `the tenant's name "A_b" is malformed`},
		"a system namespace":   {[]string{"create", "x", "--namespace", "kube-system", "--set", "errors-a"}, "choose another one with --namespace"},
		"the hub's namespace":  {[]string{"create", "atoll-system", "--set", "errors-a"}, "choose another one with --namespace"},
		"too short":            {[]string{"create", "x", "--set", "errors-a", "--lifetime", "1m"}, "must be at least 10m"},
		"an unowned namespace": {[]string{"create", "taken", "--set", "errors-a"}, "kubectl label namespace taken atoll.dev/tenant=taken"},
		"another's namespace":  {[]string{"create", "anothers", "--set", "errors-a"}, "is tenant another's"},
		"nothing to delete":    {[]string{"delete", "nosuch"}, `no tenant "nosuch"; ` + "`atoll tenant list` shows them"},
	} {
		out, err := atollAs(t.Context(), testHub.kubeconfig, append([]string{"tenant"}, c.args...)...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, not %q\n%s", name, err, c.want, out)
		}
	}
	var roles rbacv1.RoleBindingList
	if err := clientAs(t, "").List(t.Context(), &roles, client.InNamespace("taken")); err != nil || len(roles.Items) > 0 {
		t.Errorf("a namespace that is no tenant's got %d role bindings (%v)", len(roles.Items), err)
	}
}

// TestSetFromBeginToEnd: one command makes a set and gives it to its admin, with the role's
// rights for this set and no other.
func TestSetFromBeginToEnd(t *testing.T) {
	apply(t, set("other-shore", "{}"))
	apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: ashore}}")
	t.Cleanup(func() {
		_, _ = atollAs(context.WithoutCancel(t.Context()), testHub.kubeconfig, "set", "delete", "shore", "--with-set")
	})
	file := filepath.Join(t.TempDir(), "shore.kubeconfig")
	for range 2 { // it may be repeated
		began := time.Now()
		out := atollOK(t, "set", "create", "shore", "--admin", "sandy", "--out", file, "--lifetime", "1h")
		expectGoodForAnHour(t, out, began)
		for _, want := range []string{"Set shore", file, "sandy", "atoll tenant create NAME --set shore"} {
			if !strings.Contains(out, want) {
				t.Errorf("it does not contain %q:\n%s", want, out)
			}
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig is for others to read: %v %v", info.Mode(), err)
	}
	apply(t, clusterOf("beach", ", labels: {atoll.dev/set: shore}}")+"\n---\n"+clusterOf("dune", ", labels: {atoll.dev/set: other-shore}}"))
	taint := func(name string) *v1alpha1.Cluster {
		return &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}`))
	for user, admin := range map[string]client.Client{"the kubeconfig": clientOf(t, file), "sandy": clientAs(t, "sandy")} {
		testwait.UntilNil(t, user+" edits a Cluster of the set", func(ctx context.Context) error {
			return admin.Patch(ctx, taint("beach"), patch, client.DryRunAll)
		})
		binding := &v1alpha1.ClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Name: "shore", Namespace: "ashore"}, Spec: v1alpha1.ClusterSetBindingSpec{ClusterSet: "shore"}}
		for name, err := range map[string]error{
			"another set's Cluster":                     admin.Patch(t.Context(), taint("dune"), patch, client.DryRunAll),
			"the set itself":                            admin.Patch(t.Context(), &v1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "shore"}}, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unboundNamespaces":"Allow"}}`)), client.DryRunAll),
			"a binding, without the right to write any": admin.Create(t.Context(), binding, client.DryRunAll),
			"Secrets": admin.Get(t.Context(), client.ObjectKey{Namespace: "atoll-system", Name: "any"}, &corev1.Secret{}),
		} {
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s, %s: %v", user, name, err)
			}
		}
	}
	// A user that is no longer named loses the rights; a selector changes only if stated.
	atollOK(t, "set", "create", "shore", "--admin", "rocky", "--selector", "coast=sandy", "--out", file)
	atollOK(t, "set", "create", "shore", "--admin", "rocky", "--out", file)
	var shore v1alpha1.ClusterSet
	if err := clientAs(t, "").Get(t.Context(), client.ObjectKey{Name: "shore"}, &shore); err != nil || shore.Spec.ClusterSelector.LabelSelector.MatchLabels["coast"] != "sandy" {
		t.Errorf("the set is %+v (%v)", shore.Spec, err)
	}
	testwait.UntilNil(t, "sandy has no rights any more", func(ctx context.Context) error {
		if (roleHolder{user: "sandy"}).isAllowed(t, resourceAttributes("manage", "clustersets.atoll.dev", "shore", "")) {
			return errors.New("she has")
		}
		return nil
	})
	atollOK(t, "set", "delete", "shore")
	if err := clientAs(t, "").Get(t.Context(), client.ObjectKey{Name: "shore"}, &shore); err != nil {
		t.Errorf("the set went with its admins: %v", err)
	}
	testwait.UntilNil(t, "the kubeconfig ends", func(ctx context.Context) error {
		if err := clientOf(t, file).Get(ctx, client.ObjectKey{Name: "beach"}, &v1alpha1.Cluster{}); !apierrors.IsUnauthorized(err) && !apierrors.IsForbidden(err) {
			return fmt.Errorf("it does not: %v", err)
		}
		return nil
	})
	atollOK(t, "set", "delete", "shore", "--with-set")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"nothing to delete":    {[]string{"delete", "nosuch"}, "`kubectl get clustersets` lists"},
		"the set of all":       {[]string{"create", "default"}, "atoll:fleet-admins"},
		"a malformed name":     {[]string{"create", "A b"}, `the set's name "A b" is malformed`},
		"a malformed selector": {[]string{"create", "x", "--selector", "a in b"}, "--selector"},
		"too short":            {[]string{"create", "x", "--lifetime", "1m"}, "must be at least 10m"},
	} {
		if out, err := atollAs(t.Context(), testHub.kubeconfig, append([]string{"set"}, c.args...)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, not %q\n%s", name, err, c.want, out)
		}
	}
}
