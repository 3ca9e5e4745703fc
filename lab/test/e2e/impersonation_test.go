package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	vocabulary "atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/testwait"
)

// impersonator is a ServiceAccount of the hub that may reach member2 and do everything in
// its namespace. It tries to be another user in members.
type impersonator struct {
	t     *testing.T
	hub   *rest.Config
	host  string
	ns    string
	token string
}

const whoAmI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

func newMallory(t *testing.T) *impersonator {
	t.Helper()
	ns := createNamespace(t, "arrive")
	config, err := clientcmd.BuildConfigFromFlags("", sharedWorld.lab.KubeconfigPath("hub"))
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	apply(t, ns, `
apiVersion: v1
kind: ServiceAccount
metadata: {name: mallory, namespace: $NS}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: mallory, namespace: $NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: mallory, namespace: $NS}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: arrive}
rules: [{apiGroups: [atoll.dev], resources: [clusters/proxy], resourceNames: [member2], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: arrive}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: arrive}
subjects: [{kind: ServiceAccount, name: mallory, namespace: $NS}]
`)
	kubectlAtEnd(t, "hub", "delete clusterrole,clusterrolebinding arrive")
	m := &impersonator{t: t, hub: config, host: at.Host, ns: ns, token: strings.TrimSpace(mustKubectl(t, "", "create token mallory -n "+ns))}
	testwait.UntilNil(t, "the hub lets mallory in", func(context.Context) error {
		if a := m.answersTo(m.whoAmI("member2"))[0]; a.code != http.StatusCreated {
			return fmt.Errorf("the hub answers %d: %s", a.code, a.body)
		}
		return nil
	})
	return m
}

// whoAmI returns a member's view of the user, with more header lines in the request.
func (m *impersonator) whoAmI(member string, lines ...string) string {
	return m.rawRequest("POST", vocabulary.ClusterProxyPath(member)+whoAmI, "{}", lines...)
}

// rawRequest returns a request in its wire form.
func (m *impersonator) rawRequest(method, path, body string, lines ...string) string {
	if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "Host:") }) {
		lines = append(lines, "Host: "+m.host)
	}
	lines = append(lines, "Authorization: Bearer "+m.token, "Content-Type: application/json")
	if body != "" && !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "Transfer-Encoding:") }) {
		lines = append(lines, fmt.Sprint("Content-Length: ", len(body)))
	}
	return method + " " + path + " HTTP/1.1\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n" + body
}

// hubAnswer is an answer of the hub.
type hubAnswer struct {
	code int
	body string
}

// answersTo returns the hub's answers to requests on one connection, which a last one ends.
func (m *impersonator) answersTo(requests ...string) (out []hubAnswer) {
	m.t.Helper()
	roots, err := rest.TLSConfigFor(m.hub)
	if err != nil {
		m.t.Fatal(err)
	}
	return m.answersOver(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots.RootCAs}, append(requests, m.rawRequest("GET", "/version", "", "Connection: close"))...)
}

func (m *impersonator) answersOver(config *tls.Config, requests ...string) (out []hubAnswer) {
	m.t.Helper()
	conn, err := tls.Dial("tcp", m.host, config)
	if err != nil {
		m.t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(testwait.HangLimit)); err != nil {
		m.t.Fatal(err)
	}
	for _, r := range requests {
		if _, err := io.WriteString(conn, r); err != nil {
			break // it was refused before it was said
		}
	}
	for from := bufio.NewReader(conn); ; {
		r, err := http.ReadResponse(from, nil)
		if err != nil {
			break
		}
		body, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			out = append(out, hubAnswer{r.StatusCode, fmt.Sprintf("%s(the body ends early: %v)", body, err)})
			break
		}
		out = append(out, hubAnswer{r.StatusCode, string(body)})
	}
	if len(out) == 0 {
		m.t.Errorf("the hub says nothing to %q", requests)
		out = append(out, hubAnswer{})
	}
	return out
}

// userInfo returns the member's view of the user; nil if the request did not reach it.
func (a hubAnswer) userInfo(t *testing.T) *authenticationv1.UserInfo {
	t.Helper()
	var review authenticationv1.SelfSubjectReview
	if json.Unmarshal([]byte(a.body), &review) != nil || review.Kind != "SelfSubjectReview" {
		return nil
	}
	return &review.Status.UserInfo
}

func (m *impersonator) ownUserInfo() *authenticationv1.UserInfo {
	return &authenticationv1.UserInfo{
		Username: "atoll:serviceaccount:" + m.ns + ":mallory",
		Groups:   []string{"atoll:serviceaccounts", "atoll:serviceaccounts:" + m.ns, "system:authenticated"},
	}
}

// TestNoUserArrivesAsAnother: in a member a user of the hub has his own identity or is
// refused, whatever identity the request claims, in any form and on any path.
func TestNoUserArrivesAsAnother(t *testing.T) {
	t.Parallel()
	m := newMallory(t)
	t.Run("by lines of the header", m.byHeaders)
	t.Run("by requests within requests", m.bySmuggling)
	t.Run("by paths", m.byPaths)
	t.Run("by names of Kubernetes' own", m.byNames)
	t.Run("by pods on the hub", m.byPods)
	t.Run("by certificates of others", m.byCertificates)
}

func (m *impersonator) byHeaders(t *testing.T) {
	secret := base64.RawURLEncoding.EncodeToString([]byte("another-token"))
	for _, line := range []string{
		"Impersonate-User: system:admin", "impersonate-user: jane", "IMPERSONATE-USER: jane", "Impersonate-User : jane", "X: y\r\n Impersonate-User: jane",
		"Impersonate-User: jane\r\nImpersonate-User: system:admin", "Impersonate-User:", "Impersonate-User:\r\nImpersonate-User: jane",
		"Impersonate-Group: system:masters", "Impersonate-Uid: 1", "Impersonate-Extra-Scopes: all", "Impersonate-Extra-: all", "Impersonate-Extra-%41: all",
		"Impersonate_User: jane", "Impersonate-User\x00: jane", "Impersonate-Us\u00ebr: jane", "ImpersonateUser: jane",
		"X-Remote-User: jane\r\nX-Remote-Group: system:masters", "X-Remote-Uid: 1", "X-Remote-Extra-Scopes: all", "X_Remote_User: jane",
		"X-Forwarded-User: jane", "X-Original-User: jane", "Front-End-Https: on", "Cookie: user=jane", "Proxy-Authorization: Bearer x",
		"Connection: Impersonate-User, Impersonate-Group", "Connection: Authorization", "Connection: Host", "Connection: keep-alive, Content-Length",
		"Authorization: Bearer another-token", "Authorization: Basic amFuZTp4",
		"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io." + secret, "Sec-WebSocket-Protocol: a\r\nSec-Websocket-Protocol: base64url.bearer.authorization.k8s.io." + secret,
		"X-HTTP-Method-Override: DELETE", "Host: " + vocabulary.FleetViewHost, "Host: " + m.host + "\r\nHost: " + vocabulary.FleetViewHost, "Forwarded: host=" + vocabulary.FleetViewHost,
		"Upgrade: websocket", "Upgrade:\r\nUpgrade: websocket\r\nConnection: Upgrade", "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
		"Transfer-Encoding: chunked\r\nTrailer: Impersonate-User",
	} {
		ask := m.whoAmI("member2", line)
		if strings.HasPrefix(line, "Transfer-Encoding") {
			ask = strings.TrimSuffix(ask, "{}") + "2\r\n{}\r\n0\r\nImpersonate-User: jane\r\n\r\n"
		}
		for i, a := range m.answersTo(ask) {
			info := a.userInfo(t)
			if info != nil && !reflect.DeepEqual(info, m.ownUserInfo()) {
				t.Errorf("%q: in the member it is %+v", line, info)
			}
			if i == 0 && info == nil && (a.code < 400 || strings.Contains(line, "Cookie")) { // an answer to something else, or one line too many is refused
				t.Errorf("%q: %d %s", line, a.code, a.body)
			}
		}
	}
}

func (m *impersonator) bySmuggling(t *testing.T) {
	inner := m.whoAmI("member2", "Impersonate-User: jane", "Impersonate-Group: system:masters")
	plain := func(lines ...string) string {
		return m.rawRequest("GET", vocabulary.ClusterProxyPath("member2")+"/version", "", lines...)
	}
	for what, requests := range map[string][]string{
		"after an upgrade without an end":         {plain("Connection: Upgrade", "Upgrade: websocket"), inner},
		"after an upgrade to SPDY":                {plain("Connection: Upgrade", "Upgrade: SPDY/3.1"), inner},
		"after one to HTTP/2":                     {plain("Connection: Upgrade", "Upgrade: h2c"), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", inner},
		"as what follows a body of no length":     {plain("Content-Length: 0") + inner},
		"as a body of a GET":                      {m.rawRequest("GET", vocabulary.ClusterProxyPath("member2")+"/version", inner)},
		"with a length and chunks":                {m.rawRequest("POST", vocabulary.ClusterProxyPath("member2")+whoAmI, "0\r\n\r\n"+inner, "Content-Length: 5", "Transfer-Encoding: chunked")},
		"with two lengths":                        {m.rawRequest("POST", vocabulary.ClusterProxyPath("member2")+whoAmI, "{}", "Content-Length: 0") + inner},
		"with chunks in another spelling":         {m.rawRequest("POST", vocabulary.ClusterProxyPath("member2")+whoAmI, "0\r\n\r\n"+inner, "Transfer-Encoding: \x0bchunked")},
		"with chunks that are none":               {m.rawRequest("POST", vocabulary.ClusterProxyPath("member2")+whoAmI, "0\r\n\r\n"+inner, "Transfer-Encoding: identity, chunked")},
		"in the line of the request":              {m.rawRequest("GET", vocabulary.ClusterProxyPath("member2")+"/version HTTP/1.1\r\nImpersonate-User: jane\r\nX:", "")},
		"in the line of the request, encoded":     {m.rawRequest("POST", vocabulary.ClusterProxyPath("member2")+whoAmI+"?a=b%20HTTP/1.1%0d%0aImpersonate-User:%20jane%0d%0a", "{}")},
		"in the path, encoded":                    {m.rawRequest("POST", vocabulary.ClusterProxyPath("member2")+whoAmI+"%0d%0aImpersonate-User:%20jane", "{}")},
		"to an exec of nothing, and what follows": {m.rawRequest("GET", vocabulary.ClusterProxyPath("member2")+"/api/v1/namespaces/default/pods/none/exec?command=ls", "", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="), inner},
	} {
		for _, a := range m.answersTo(requests...) {
			if info := a.userInfo(t); info != nil && !reflect.DeepEqual(info, m.ownUserInfo()) {
				t.Errorf("%s: in the member it is %+v", what, info)
			}
		}
	}
}

// byPaths: mallory, with the right to reach member2 alone and equal rights in member1,
// reads from neither member1 nor the hub.
func (m *impersonator) byPaths(t *testing.T) {
	const treasure = "the-treasure"
	for _, c := range []string{"hub", "member1"} {
		kubectlAt(t, sharedWorld.lab.KubeconfigPath(c), "", "create configmap arrive-"+c+" -n default --from-literal=is="+treasure)
		kubectlAtEnd(t, c, "delete configmap arrive-"+c+" -n default")
	}
	for _, member := range []string{"member1", "member2"} {
		grantRole(t, member, "arrive", "--clusterrole view --user "+m.ownUserInfo().Username)
	}
	proxy, one := vocabulary.ClusterProxyPath("member2"), "/api/v1/namespaces/default/configmaps/arrive-"
	up := strings.Repeat("/..", 6)
	var paths []string
	for _, dots := range []string{"..", "%2e%2e", "%2E.", ".%2e", "%252e%252e", "..;", "..%00"} {
		for _, slash := range []string{"/", "%2f", "%5c", `\`, "//"} {
			ups := strings.ReplaceAll(strings.ReplaceAll(up, "..", dots), "/", slash)
			paths = append(paths, proxy+ups+one+"hub", proxy+ups+vocabulary.ClusterProxyPath("member1")+one+"member1", proxy+slash+dots+slash+dots+slash+"member1/proxy"+one+"member1")
		}
	}
	for _, sneaky := range []string{
		"/apis/atoll.dev/v1alpha1/clusters/member2%2f..%2fmember1/proxy", "/apis/atoll.dev/v1alpha1/clusters/member2/../member1/proxy",
		"/apis/atoll.dev/v1alpha1/clusters/member2;member1/proxy", "/apis/atoll.dev/v1alpha1/clusters/member2%00member1/proxy", "/apis/atoll.dev/v1alpha1/clusters//proxy",
		"/apis/atoll.dev/v1alpha1/namespaces/" + m.ns + "/clusters/member1/proxy", "/apis/atoll.dev/v1alpha1/watch/clusters/member1/proxy",
		"/apis/atoll.dev/v1alpha1/proxy/clusters/member1", "//apis/atoll.dev/v1alpha1/clusters/member1/proxy", "/apis//atoll.dev/v1alpha1/clusters/member1/proxy",
		"/apis/atoll.dev/v1alpha1/clusters/member1/prox%79", "/apis/atoll.dev/v1alpha1/%63lusters/member1/proxy", "/apis/atoll.dev/v1alpha1/clusters/MEMBER1/proxy",
		"/api/v1/nodes/member1/proxy", "/api/v1/proxy/nodes/member1", "/apis/atoll.dev/v1alpha1/clusters/member2/proxy/../../member1/proxy",
		"http://" + vocabulary.FleetViewHost + vocabulary.ClusterProxyPath("member1"), "https://" + m.host + vocabulary.ClusterProxyPath("member1"), proxy + "//" + vocabulary.FleetViewHost, proxy + "/http://" + m.host,
	} {
		paths = append(paths, sneaky+one+"member1")
	}
	for _, path := range paths {
		for _, a := range m.answersTo(m.rawRequest("GET", path, "")) {
			if strings.Contains(a.body, treasure) {
				t.Errorf("%s: %s", path, a.body)
			}
		}
	}
	for _, a := range m.answersTo(m.rawRequest("CONNECT", m.host, ""), m.rawRequest("CONNECT", proxy+"/", ""), m.rawRequest("TRACE", proxy+"/", ""), m.rawRequest("GET", proxy+one+"hub", ""))[:1] {
		if a.code < 400 {
			t.Errorf("CONNECT: %d %s", a.code, a.body)
		}
	}
	if a := m.answersTo(m.rawRequest("GET", proxy+"/api/v1/namespaces/default/configmaps/kube-root-ca.crt", "")); a[0].code != http.StatusOK {
		t.Errorf("what mallory may read, he does not: %+v", a)
	}
}

// byNames: an administrator of the hub may impersonate any user, and does not become a user
// of the member's own, even if the member lets the agent impersonate every user.
func (m *impersonator) byNames(t *testing.T) { expectNoMemberIdentity(t, "member2") }

func expectNoMemberIdentity(t *testing.T, member string) {
	t.Helper()
	role := "arrive-" + member
	apply(t, "", `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: `+role+`}
rules: [{apiGroups: [atoll.dev], resources: [clusters/proxy], resourceNames: [`+member+`], verbs: [create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: `+role+`}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: `+role+`}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: judy}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:kube-controller-manager"}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:node:node-1"}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:anonymous"}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: "atoll:admin"}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: "atoll:serviceaccount:kube-system:default"}
- {kind: ServiceAccount, name: default, namespace: kube-system}
`)
	kubectlAtEnd(t, "hub", "delete clusterrole,clusterrolebinding "+role)
	asked := func(as string) string {
		return kubectlAt(t, sharedWorld.lab.KubeconfigPath("hub"), "{}", "create --raw "+vocabulary.ClusterProxyPath(member)+whoAmI+" -f - "+as)
	}
	testwait.UntilNil(t, "the hub lets them in", func(context.Context) error {
		return outputContains(asked("--as system:serviceaccount:kube-system:default"), `"atoll:serviceaccount:kube-system:default"`)
	})
	for as, want := range map[string]string{
		"--as system:admin --as-group system:masters":                 "atoll:admin atoll:masters,system:authenticated",
		"--as judy --as-group system:masters --as-group system:nodes": "judy atoll:masters,system:authenticated",
		"--as judy --as-group atoll:masters --as-group dev":           "judy dev,system:authenticated",
		"--as system:serviceaccount:kube-system:default":              "atoll:serviceaccount:kube-system:default atoll:serviceaccounts,atoll:serviceaccounts:kube-system,system:authenticated",
		"--as system:serviceaccount:a:b --as-group system:masters":    "atoll:serviceaccount:a:b atoll:masters,system:authenticated",
		"--as judy --as-uid 0 --as-user-extra scopes=all":             "judy system:authenticated",
		"--as system:kube-controller-manager":                         "",
		"--as system:node:node-1 --as-group system:nodes":             "",
		"--as atoll:admin --as-group atoll:masters":                   "",
		"--as atoll:serviceaccount:kube-system:default":               "",
		"--as system:anonymous":                                       "",
		"--as judy --as-group system:unauthenticated":                 "",
	} {
		out := asked(as)
		info := hubAnswer{body: strings.TrimSpace(out)}.userInfo(t)
		got := ""
		if info != nil {
			got = info.Username + " " + strings.Join(info.Groups, ",")
			if info.UID != "" || len(info.Extra) > 0 {
				t.Errorf("%s: in the member it is %+v", as, info)
			}
		}
		if got != want || want == "" && !strings.Contains(out, "not passed to") && !strings.Contains(out, "the request has no user") {
			t.Errorf("%s: in the member it is %q, not %q: %s", as, got, want, out)
		}
	}
}

// byPods: objects shown on the hub lead to members under the same name.
func (m *impersonator) byPods(t *testing.T) {
	apply(t, m.ns, strings.ReplaceAll(pushedWeb, "$CLUSTERS", "member2"))
	pod := ""
	testwait.UntilNil(t, "a pod of member2 is seen", func(context.Context) error {
		out := mustKubectl(t, "", "get pods -n "+m.ns+" -o name -l atoll.dev/cluster=member2")
		if pod = strings.TrimPrefix(strings.SplitN(out, "\n", 2)[0], "pod/"); pod == "" {
			return errors.New("there is none")
		}
		return nil
	})
	refusal := fmt.Sprintf("User \\%q cannot ", m.ownUserInfo().Username)
	refusal = strings.Replace(refusal, `mallory"`, `mallory\"`, 1)
	path := "/api/v1/namespaces/" + m.ns + "/pods/" + pod
	for _, door := range []struct{ method, path, body string }{
		{"POST", path + "/exec?command=ls&stdout=true", ""}, {"GET", path + "/exec?command=ls&stdout=true", ""}, {"POST", path + "/attach", ""},
		{"POST", path + "/portforward?ports=1", ""}, {"GET", path + "/proxy/", ""}, {"POST", path + "/proxy/x/..%2f", "{}"}, {"DELETE", path, "{}"},
	} {
		upgrade := []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol: v5.channel.k8s.io"}
		for _, lines := range [][]string{nil, {"X-Remote-User: jane"}, upgrade, append(upgrade, "Impersonate-Group: system:masters"), {"Impersonate-User: jane"}} {
			a := m.answersTo(m.rawRequest(door.method, door.path, door.body, lines...))[0]
			refused := strings.Contains(strings.Join(lines, ""), "Impersonate")
			if a.code < 400 || !refused && !strings.Contains(a.body, refusal) && !strings.Contains(a.body, "\\\"..\\\"") {
				t.Errorf("%s %s with %q: %d %s", door.method, door.path, lines, a.code, a.body)
			}
		}
	}
}

// byCertificates: an agent's gateway credentials are no identity at the API, and only the
// API server's own proxy may name the user.
func (m *impersonator) byCertificates(t *testing.T) {
	roots, err := rest.TLSConfigFor(m.hub)
	if err != nil {
		t.Fatal(err)
	}
	identity, err := identityIn(t, sharedWorld.lab.KubeconfigPath("member2")).LoadIdentity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	agent, err := tls.X509KeyPair(identity.CertificatePEM, identity.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := tls.X509KeyPair(m.hub.CertData, m.hub.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	const asRoot = "X-Remote-User: system:admin\r\nX-Remote-Group: system:masters"
	ask := "GET /api/v1/namespaces/kube-system/secrets HTTP/1.1\r\nHost: " + m.host + "\r\nConnection: close\r\n"
	me := "POST " + whoAmI + " HTTP/1.1\r\nHost: " + m.host + "\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
	for what, c := range map[string]struct {
		shown   []tls.Certificate
		request string
		want    string
	}{
		"an agent's certificate":             {[]tls.Certificate{agent}, ask + "\r\n", `system:anonymous`},
		"an agent that says to be the proxy": {[]tls.Certificate{agent}, ask + asRoot + "\r\n\r\n", `system:anonymous`},
		"a false proxy without a user":       {nil, ask + asRoot + "\r\n\r\n", `system:anonymous`},
		"mallory, as a false proxy":          {nil, ask + "Authorization: Bearer " + m.token + "\r\n" + asRoot + "\r\n\r\n", `User \"system:serviceaccount:` + m.ns + `:mallory\" cannot list`},
		"a client that says to be the proxy": {[]tls.Certificate{admin}, me + "X-Remote-User: jane\r\n\r\n{}", `"username":"atoll-admin"`},
	} {
		a := m.answersOver(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots.RootCAs, Certificates: c.shown}, c.request)[0]
		if !strings.Contains(a.body, c.want) && !(c.want == "system:anonymous" && a.code == http.StatusUnauthorized) {
			t.Errorf("%s: %d %s", what, a.code, a.body)
		}
	}
}
