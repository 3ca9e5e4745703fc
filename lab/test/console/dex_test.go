package console

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/dexidp/dex/server"
	"github.com/dexidp/dex/storage"
	"github.com/dexidp/dex/storage/memory"
	dexweb "github.com/dexidp/dex/web"
	"golang.org/x/crypto/bcrypt"

	"atoll.dev/atoll/internal/testwait"
)

const (
	dexClient = "atoll"
	password  = "correct horse battery staple"
	// tokenLifetime is short, so that the page renews its session while the test looks.
	tokenLifetime = 20 * time.Second
)

// dexServer is a Dex with two people, in this process.
type dexServer struct {
	server  *httptest.Server
	storage storage.Storage
	dex     atomic.Pointer[server.Server]
	// renewals counts the refresh tokens that were used.
	renewals atomic.Int32
}

// ServeHTTP serves Dex, once it is set up: its issuer is the address of this server.
func (d *dexServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	dex := d.dex.Load()
	if dex == nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if r.Method == http.MethodPost && r.FormValue("grant_type") == "refresh_token" {
		d.renewals.Add(1)
	}
	dex.ServeHTTP(w, r)
}

// startDex starts a Dex that has no client yet. Its keys are made until ctx ends.
func startDex(ctx context.Context) (*dexServer, error) {
	log := slog.New(slog.DiscardHandler)
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.DefaultCost)
	if err != nil {
		return nil, err
	}
	people := []storage.Password{
		{Email: "aiko@example.com", Username: "aiko", UserID: "1", Hash: hash}, {Email: "guest@example.com", Username: "guest", UserID: "2", Hash: hash},
	}
	d := &dexServer{storage: memory.New(log)}
	d.server = httptest.NewUnstartedServer(d)
	d.server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	d.server.StartTLS()
	policy, err := server.NewRefreshTokenPolicy(log, true, "", "", "")
	if err != nil {
		return nil, err
	}
	kept := storage.WithStaticConnectors(storage.WithStaticPasswords(d.storage, people, log), []storage.Connector{{ID: server.LocalConnector, Type: server.LocalConnector, Name: "Email"}})
	dex, err := server.NewServer(ctx, server.Config{
		Issuer: d.server.URL, Storage: kept, SkipApprovalScreen: true, IDTokensValidFor: tokenLifetime, RefreshTokenPolicy: policy, Logger: log, Web: server.WebConfig{WebFS: dexweb.FS()},
	})
	if err != nil {
		return nil, fmt.Errorf("start Dex: %w", err)
	}
	d.dex.Store(dex)
	return d, nil
}

// hubArgs returns the arguments of a hub that trusts Dex, with a file in the directory.
func (d *dexServer) hubArgs(dir string) ([]string, error) {
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: d.server.Certificate().Raw})
	text, err := json.Marshal(map[string]any{
		"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
		"jwt": []any{map[string]any{
			"issuer":        map[string]any{"url": d.server.URL, "audiences": []string{dexClient}, "certificateAuthority": string(authority)},
			"claimMappings": map[string]any{"username": map[string]any{"claim": "email", "prefix": "oidc:"}},
		}},
	})
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "authentication.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return nil, err
	}
	return []string{"--authentication-config=" + path, "--console-oidc-issuer=" + d.server.URL, "--console-oidc-scopes=email,offline_access"}, nil
}

// signInAtDex goes from the sign-in page to Dex, signs in there, and comes back.
func (p *page) signInAtDex(email string) {
	p.t.Helper()
	p.run(chromedp.WaitVisible(chromedp.CSS("#issuer")), chromedp.Click(chromedp.CSS("#issuer")))
	p.run(chromedp.WaitVisible(chromedp.CSS("#login")), chromedp.SendKeys(chromedp.CSS("#login"), email), chromedp.SendKeys(chromedp.CSS("#password"), password))
	p.run(chromedp.Click(chromedp.CSS("#submit-login")))
	// The page changes under the question, which then has no answer.
	testwait.UntilNil(p.t, "the console of "+email, func(context.Context) error {
		text, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](`location.href + "\n" + document.body.innerText`))
		if err == nil && !strings.Contains(text, "oidc:"+email) {
			err = errors.New(text)
		}
		return err
	})
	p.evaluateScript(startScript)
}

const dexObjects = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: aiko-sees-all}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "atoll:viewer"}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: "oidc:aiko@example.com"}]
`

// TestSignInByDex signs two people in at a real provider: the rights of each are those of RBAC. The session of the first
// is renewed under the open page.
func TestSignInByDex(t *testing.T) {
	if findBrowser() == "" {
		t.Skip("no chromium: apt-get install chromium")
	}
	if world.dex == nil {
		t.Skipf("the lab of %s has no Dex", labVariable)
	}
	runKubectl(t, dexObjects, "apply", "-f", "-")
	client := storage.Client{ID: dexClient, Name: "Atoll", Public: true, RedirectURIs: []string{world.hub + "/console/oidc/callback"}}
	if err := world.dex.storage.CreateClient(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	host := world.dex.server.Listener.Addr().String()
	p := openPage(t)
	p.awaitText("the sign-in page with the issuer", "Sign in with "+host, "or with a token")
	p.openAddress("/console/waiting")
	p.signInAtDex("aiko@example.com")
	p.awaitText("the page of before the sign-in", "Waiting", "oidc:aiko@example.com")
	p.openView("fleet")
	p.awaitText("both clusters", "member1", "member2", "Ready")
	before := world.dex.renewals.Load()
	testwait.UntilTrue(t, "the page renews its session", func() bool { return world.dex.renewals.Load() >= before+2 })
	p.openView("clusters", "member1")
	p.awaitText("a page after the renewals", "member1", "oidc:aiko@example.com")
	if got := p.evaluateScript(`document.cookie`); got != "" {
		t.Errorf("the page's script reads the cookies: %q", got)
	}
	p.checkUnharmed()
	p.run(chromedp.Click(`//button[text()="Sign out"]`))
	p.awaitText("the sign-in page again", "Sign in to the hub", "Sign in with "+host)

	p.signInAtDex("guest@example.com")
	p.openView("fleet")
	p.awaitText("the refusal of Clusters", "You may not list Clusters", "oidc:guest@example.com")
	p.checkUnharmed()

	// A sign-in that did not begin in this browser is refused.
	p.run(chromedp.Click(`//button[text()="Sign out"]`))
	p.awaitText("the sign-in page again", "Sign in to the hub")
	p.run(chromedp.Navigate(world.hub + "/console/oidc/callback?code=stolen&state=other"))
	p.awaitText("the refusal of another browser's answer", "Sign in to the hub", "Begin again")
}
