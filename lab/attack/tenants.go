package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/lab"
)

var tenantAttacks = []Attack{
	{Name: "indented-json", Caller: Tenant, Summary: "let a fieldOverrider write JSON with an indentation of 2,000 characters", run: overrideNestedIndentedJSON},
	{Name: "many-overriders", Caller: Tenant, Summary: "let 10 policies of 256 overriders each change one object", run: writeManyOverriders},
	{Name: "huge-plan", Caller: Person, Summary: "request plans of 15 MB", run: requestHugePlans},
}

var personAttacks = []Attack{
	{Name: "system-binding", Caller: Person, Summary: "as a fleet administrator, take the ServiceAccount of an upstream controller in kube-system", run: takeSystemAccount},
}

func overrideNestedIndentedJSON(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	if err := t.placeWorkloadOnAttacker(ctx); err != nil {
		return "", err
	}
	document := `{"a":{"b":` + strings.Repeat("[", 400) + strings.Repeat("]", 400) + `}}`
	indented := "{\n" + strings.Repeat(" ", 2000) + document[1:]
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "indented", "namespace": t.name}, "data": map[string]any{"d": indented},
	})
	if err != nil {
		return "", err
	}
	if err := t.applyObject(ctx, configMaps, string(body)); err != nil {
		return "", err
	}
	written := t.applyObject(ctx, overridePolicy, `{"apiVersion":"atoll.dev/v1alpha1","kind":"OverridePolicy","metadata":{"name":"indented","namespace":"$NAME"},"spec":{
		"resourceSelectors":[{"apiVersion":"v1","kind":"ConfigMap","name":"indented"}],
		"overrideRules":[{"overriders":{"fieldOverrider":[{"fieldPath":"/data/d","json":[{"subPath":"/c","operator":"add","value":1}]}]}}]}}`)
	if written != nil {
		return "the policy was " + describeAcceptance(written), nil
	}
	failure, err := t.expectRenderErrorInOrder(ctx, lasts, "indented")
	return "the policy was accepted, and its object was not rendered: " + failure, err
}

// expectRenderErrorInOrder is the attacker's agent for that time. Its order must have an error in place of the
// ConfigMap of that name, which is returned.
func (t *Target) expectRenderErrorInOrder(ctx context.Context, lasts time.Duration, name string) (failure string, err error) {
	a, err := t.connectAgent(ctx)
	if err != nil {
		return "", err
	}
	defer a.closeSession()
	if err := a.sendFrame(inventoryFrame(honestInventory())); err != nil {
		return "", err
	}
	_, err = a.waitForOrderThat(ctx, func(m atoll.Manifest) bool {
		for _, it := range m.Items {
			if it.Key.Name == name {
				failure = it.Error
			}
		}
		return failure != ""
	})
	if err != nil {
		return "", fmt.Errorf("the ConfigMap %s is not stopped by a bound of its rendering: %w", name, err)
	}
	_ = lab.PauseFor(ctx, lasts)
	return failure, nil
}

func describeAcceptance(err error) string {
	if err == nil {
		return "accepted"
	}
	return "refused: " + err.Error()
}

// maxOverriders is how many overriders of one type a rule may have.
const maxOverriders = 256

func writeManyOverriders(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	if err := t.placeWorkloadOnAttacker(ctx); err != nil {
		return "", err
	}
	if err := t.applyObject(ctx, configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"many","namespace":"$NAME"},"data":{"d":"e"}}`); err != nil {
		return "", err
	}
	one := `{"path":"/data/d","operator":"replace","value":"` + strings.Repeat("x", 100) + `"}`
	for i := range 10 {
		written := t.applyObject(ctx, overridePolicy, fmt.Sprintf(`{"apiVersion":"atoll.dev/v1alpha1","kind":"OverridePolicy","metadata":{"name":"many-%d","namespace":"$NAME"},"spec":{
			"resourceSelectors":[{"apiVersion":"v1","kind":"ConfigMap","name":"many"}],"overrideRules":[{"overriders":{"plaintext":[%s]}}]}}`, i, one+strings.Repeat(","+one, maxOverriders-1)))
		if written != nil {
			return "", written
		}
	}
	failure, err := t.expectRenderErrorInOrder(ctx, lasts, "many")
	return "all policies were accepted, and their object was not rendered: " + failure, err
}

func requestHugePlans(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	var list strings.Builder
	list.WriteString(`{"objects":[`)
	for i := range 15_000 {
		if i > 0 {
			list.WriteByte(',')
		}
		fmt.Fprintf(&list, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c%d","namespace":%q},"data":{"d":"%01000d"}}`, i, t.name, i)
	}
	list.WriteString(`]}`)
	body := []byte(list.String())
	return repeatRefused(ctx, lasts, 4, func(ctx context.Context) error {
		return t.kube.CoreV1().RESTClient().Post().AbsPath(atoll.PlanPath).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
	})
}

// takeSystemAccount tries what leads from a fleet administrator to the hub's administrator.
func takeSystemAccount(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	as := rest.CopyConfig(t.config)
	as.Impersonate = rest.ImpersonationConfig{UserName: attacker, Groups: []string{"system:authenticated", "atoll:fleet-admins"}}
	client, err := kubernetes.NewForConfig(as)
	if err != nil {
		return "", err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "clusterrole-aggregation-controller"}}
	_, binding := client.RbacV1().RoleBindings("kube-system").Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "attacker-"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: attacker}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "atoll:application-team"},
	}, metav1.CreateOptions{})
	_, created := client.CoreV1().ServiceAccounts("kube-system").Create(ctx, account, metav1.CreateOptions{})
	_, token := client.CoreV1().ServiceAccounts("kube-system").CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	for what, err := range map[string]error{"a RoleBinding": binding, "a ServiceAccount": created, "a token": token} {
		if err == nil {
			return "", errors.New("a fleet administrator wrote " + what + " in kube-system")
		}
	}
	return "refused: " + binding.Error(), nil
}
