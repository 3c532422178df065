package compose

import (
	"errors"
	"maps"
	"slices"

	"github.com/compose-spec/compose-go/v2/consts"
	"github.com/compose-spec/compose-go/v2/types"
)

// Sources returns the image sources of the services that have containers, as in the files. Build settings that cannot
// be honored are ErrConfig.
func (p *Project) Sources() ([]Source, error) {
	var all []Source
	for _, name := range p.order {
		svc := p.as.Services[name]
		if svc.GetScale() == 0 {
			continue
		}
		s, err := p.source(svc)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// Mounted returns the references of the images that services mount, by service.
func (p *Project) Mounted() map[string][]string {
	images := map[string][]string{}
	for name, svc := range p.as.Services {
		for _, v := range svc.Volumes {
			if v.Type == types.VolumeTypeImage {
				images[name] = append(images[name], v.Source)
			}
		}
	}
	return images
}

// Variables returns the variables that the project's files see, followed by the environment of each service.
func (p *Project) Variables() []map[string]string {
	seen := maps.Clone(p.as.Environment)
	delete(seen, consts.ComposeProjectName) // the sandbox's name is no secret
	all := []map[string]string{seen}
	for _, svc := range p.as.Services {
		env := map[string]string{}
		for name, value := range svc.Environment {
			if value != nil {
				env[name] = *value
			}
		}
		all = append(all, env)
	}
	return all
}

func (p *Project) source(svc types.ServiceConfig) (Source, error) {
	s := Source{Service: svc.Name, Project: p.folder(), Image: svc.Image, Platform: svc.Platform}
	policy, age, err := svc.GetPullPolicy()
	if err != nil {
		return s, p.bad(svc.Name, "pull_policy", "%w", err)
	}
	local, err := p.flag(svc.Name, "x-local")
	if err != nil {
		return s, err
	}
	switch {
	case local || policy == types.PullPolicyNever:
		s.Pull = PullNever
	case policy == types.PullPolicyAlways || policy == types.PullPolicyRefresh:
		s.Pull, s.Age = PullAlways, age
	default:
		s.Pull = PullMissing
	}
	if svc.Build != nil {
		s.Build, err = p.build(svc)
		if s.Platform == "" && len(svc.Build.Platforms) == 1 {
			s.Platform = svc.Build.Platforms[0]
		}
	}
	return s, err
}

func (p *Project) build(svc types.ServiceConfig) (*Build, error) {
	b := svc.Build
	cannot := map[string]bool{
		"isolation": b.Isolation != "" && b.Isolation != "default", "platforms": len(b.Platforms) > 1,
		"provenance": b.Provenance != "" && b.Provenance != "false", "sbom": b.SBOM != "" && b.SBOM != "false",
	}
	bad := func(key, format string, a ...any) error {
		return p.badAt([]string{"services", svc.Name, "build", key}, format, a...)
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(cannot)) {
		if cannot[key] {
			errs = append(errs, bad(key, "builds do not support it here"))
		}
	}
	context := b.Context
	if p.withoutContext(&svc) {
		context = ""
	}
	build := &Build{
		Context: context, Dockerfile: b.Dockerfile, Inline: b.DockerfileInline, Target: b.Target, Network: b.Network,
		Args: map[string]string{}, Labels: maps.Clone(b.Labels), Tags: b.Tags, CacheFrom: b.CacheFrom,
		ExtraHosts: slices.Sorted(slices.Values(b.ExtraHosts.AsList(":"))), ShmSize: int64(b.ShmSize), NoCache: b.NoCache, Pull: b.Pull,
	}
	for name, value := range b.Args {
		if value == nil { // the interpolation variable, or else the Dockerfile's default
			if seen, ok := p.as.Environment[name]; ok {
				value = &seen
			}
		}
		if value != nil {
			build.Args[name] = *value
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.Ulimits)) {
		u := b.Ulimits[name]
		if u.Single != 0 {
			build.Ulimits = append(build.Ulimits, Ulimit{Name: name, Soft: int64(u.Single), Hard: int64(u.Single)})
			continue
		}
		build.Ulimits = append(build.Ulimits, Ulimit{Name: name, Soft: int64(u.Soft), Hard: int64(u.Hard)})
	}
	for _, ref := range b.Secrets {
		of := p.as.Secrets[ref.Source]
		if bool(of.External) {
			errs = append(errs, bad("secrets", "%s is external: give its file, content or variable", ref.Source))
		}
		secret := Secret{ID: ref.Source, File: of.File, Content: of.Content}
		if ref.Target != "" {
			secret.ID = ref.Target
		}
		if of.Environment != "" {
			secret.Content = p.as.Environment[of.Environment]
		}
		build.Secrets = append(build.Secrets, secret)
	}
	return build, errors.Join(errs...)
}
