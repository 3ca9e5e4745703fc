package policycheck

import (
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/rollout"
)

const (
	maxServerBytes  = 512
	maxWebhookBytes = 1024
)

// checkGateURLs returns the URLs of gates to which the hub does not send requests.
func checkGateURLs(r *v1alpha1.Rollout, at *field.Path) (errs field.ErrorList) {
	rollout.EachGate(r, at, func(g *v1alpha1.RolloutGate, at *field.Path) {
		if p := g.Prometheus; p != nil {
			errs = append(errs, checkGateURL(p.Server, maxServerBytes, false, at.Child("prometheus", "server"))...)
		}
		if w := g.Webhook; w != nil {
			errs = append(errs, checkGateURL(w.URL, maxWebhookBytes, true, at.Child("webhook", "url"))...)
		}
	})
	return errs
}

// checkGateURL returns why a URL is none to which the hub sends requests.
func checkGateURL(text string, most int, mayHaveQuery bool, at *field.Path) field.ErrorList {
	refuse := func(why string) field.ErrorList {
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, why)}
	}
	u, err := url.Parse(text)
	switch {
	case len(text) > most:
		return field.ErrorList{field.TooLong(at, "", most)}
	case err != nil || strings.ContainsFunc(text, phrase.IsSpaceOrControl):
		return refuse("is no URL")
	case u.Scheme != "https" && u.Scheme != "http":
		return refuse("must begin with https:// or http://")
	case u.Hostname() == "":
		return refuse("names no host")
	case strings.Contains(u.Host, "%"):
		return refuse("may not have a zone or an escape in its host")
	case u.User != nil:
		return refuse("may not have credentials; name a Secret in secretRef")
	case u.Fragment != "" || u.RawQuery != "" && !mayHaveQuery:
		return refuse("may not have a query or a fragment")
	}
	return nil
}
