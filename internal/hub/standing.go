package hub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/trust/standing"
)

// verbRotate on the HubSettings lets somebody rotate the hub's CAs.
const verbRotate = "rotate"

// examplesMost is how many clusters a Standing names of a kind.
const examplesMost = 20

// serveStanding answers with what stands of the hub's CAs, or changes them.
func (l *lateParts) serveStanding(w http.ResponseWriter, r *http.Request) {
	s, q, err := l.stands(r)
	reply(w, s, q, err)
}

func (l *lateParts) stands(r *http.Request) (standing.Standing, url.Values, error) {
	none, q := standing.Standing{}, r.URL.Query()
	for name := range q {
		if !slices.Contains([]string{"timeout", "output", "all", "action", "force"}, name) {
			return none, nil, apierrors.NewBadRequest(fmt.Sprintf("ca has no parameter %q; it has output, action and force", name))
		}
	}
	verb := verbRotate
	switch r.Method {
	case http.MethodGet:
		verb = "get"
	case http.MethodPost:
	default:
		return none, nil, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "ca"}, r.Method)
	}
	p, err := l.asked(r, authorizer.AttributesRecord{Verb: verb, Resource: "hubsettings", Name: v1alpha1.HubSettingsName})
	if err != nil {
		return none, nil, err
	}
	if r.Method == http.MethodPost {
		if err := p.rotate(r, q.Get("action"), q.Get("force") == "true"); err != nil {
			return none, nil, err
		}
	}
	return p.standing(time.Now(), true), q, nil
}

// asked gives the parts, if who asks may do that with Atoll's objects.
func (l *lateParts) asked(r *http.Request, what authorizer.AttributesRecord) (*parts, error) {
	u, known := request.UserFrom(r.Context())
	if !known {
		return nil, apierrors.NewUnauthorized("nobody asks")
	}
	p, ready := l.parts.Get()
	if !ready {
		return nil, starting("its tables are being read")
	}
	what.User, what.ResourceRequest = u, true
	what.APIGroup, what.APIVersion = v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version
	decision, why, err := l.authorizer.Authorize(r.Context(), what)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	if decision != authorizer.DecisionAllow {
		return nil, apierrors.NewForbidden(schema.GroupResource{Group: what.APIGroup, Resource: what.Resource}, what.Name, fmt.Errorf("user %q may not %s it; %s", u.GetName(), what.Verb, why))
	}
	return p, nil
}

// rotate the hub's CAs, or finish that.
func (p *parts) rotate(r *http.Request, action string, force bool) error {
	if action != standing.ActionRotate && action != standing.ActionFinish {
		return apierrors.NewBadRequest(fmt.Sprintf("the parameter action is %q; it is %s or %s", action, standing.ActionRotate, standing.ActionFinish))
	}
	refuse := func(why string) error {
		return apierrors.NewConflict(schema.GroupResource{Resource: "ca"}, action, fmt.Errorf("%s", why))
	}
	server := p.door.credentials.server
	if action == standing.ActionRotate {
		if _, err := server.Rotate(r.Context()); err != nil {
			return refuse(err.Error())
		}
		return nil
	}
	if s := p.standing(time.Now(), true); s.RotatingSince != nil && !force {
		switch {
		case p.peers != nil && !p.peers.Complete():
			return refuse("another hub has not told yet which agents it serves; ask again in a few seconds, or see which hub does not answer")
		case server.EndsWithTheRotation(r):
			return refuse("you come by a client certificate of the former CA, which ends with this: take the hub's new DIR/hub.kubeconfig, or another login, and finish by that. With --force you are cut off")
		case s.Agents.Former > 0:
			return refuse(fmt.Sprintf("%d agents that are in touch are not known to have certificates of the new CA. They are given them within minutes, those that check in at their next check-in: see atoll ca status. With --force those that have none come back by their key", s.Agents.Former))
		}
	}
	if _, err := server.FinishRotation(r.Context()); err != nil {
		return refuse(err.Error())
	}
	return nil
}

// standing of the hub now, with a look at all agents or without one.
func (p *parts) standing(now time.Time, agents bool) standing.Standing {
	c := p.door.credentials
	a := c.server.Authorities()
	pins := a.Pins()
	s := standing.Standing{Generation: a.Generation, CAHash: pins[0], FormerHashes: pins[1:], Certificates: c.certificates()}
	if a.Rotating() {
		s.RotatingSince = &a.Began
	}
	for _, u := range c.server.FormerUsers() {
		s.FormerUsers = append(s.FormerUsers, standing.FormerUser{Name: u.Name, Last: u.Last})
	}
	for _, one := range s.Certificates {
		if w := one.Warning(now); w != "" {
			s.Warnings = append(s.Warnings, w)
		}
	}
	if agents {
		s.Agents = p.agents(a.Generation, a.Rotating())
	}
	return s
}

// agents by the CA of their certificates. While no rotation is under way no other
// certificate gets in.
func (p *parts) agents(generation int, rotating bool) (out standing.Agents) {
	for _, c := range p.state.Clusters.List() {
		uid := string(c.UID)
		ends, by, known := p.inventory.CertificateOf(uid)
		online := p.state.Clusters.Online(uid)
		switch {
		case !c.Spec.Accepted:
			continue
		case known && by >= generation || online && !rotating:
			out.Current++
		case online:
			out.Former++
			out.FormerClusters = example(out.FormerClusters, c.Name)
		case meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ClusterJoined):
			out.Away++
		}
		if meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ClusterCertificateExpiring) {
			out.Overdue++
			out.OverdueClusters = example(out.OverdueClusters, c.Name)
		}
		if known && (out.Soonest == nil || ends.Before(*out.Soonest)) {
			out.Soonest = &ends
		}
	}
	return out
}

func example(names []string, name string) []string {
	if len(names) < examplesMost {
		names = append(names, name)
	}
	return names
}

// serveCertificates answers when agents' certificates end, and how their connections come.
func (l *lateParts) serveCertificates(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		refuse(w, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "certificates"}, r.Method))
		return
	}
	p, err := l.asked(r, authorizer.AttributesRecord{Verb: "list", Resource: "clusters"})
	if err != nil {
		refuse(w, err)
		return
	}
	out := standing.Certificates{Ends: map[string]time.Time{}, Carriage: map[string]string{}}
	for _, c := range p.state.Clusters.List() {
		if ends, _, ok := p.inventory.CertificateOf(string(c.UID)); ok {
			out.Ends[c.Name] = ends.UTC()
		}
		if how := p.inventory.CarriageOf(string(c.UID)); how != "" {
			out.Carriage[c.Name] = how
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // the only error left is that the asker has gone
}
