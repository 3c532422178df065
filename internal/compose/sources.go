package compose

import (
	"maps"
	"slices"

	"github.com/compose-spec/compose-go/v2/consts"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/fumehood/fumehood/internal/image"
)

// Sources returns the image sources of the services that have containers, as in the files.
func (p *Project) Sources() []image.Source {
	var all []image.Source
	for _, name := range p.order {
		svc := p.as.Services[name]
		if svc.GetScale() == 0 {
			continue
		}
		all = append(all, p.source(svc))
	}
	return all
}

// source rejects settings of a service's image and build that cannot be honored.
func (c *checking) source(svc *types.ServiceConfig) {
	if _, _, err := svc.GetPullPolicy(); err != nil {
		c.refuse(of(svc, "pull_policy"), "%w", err)
	}
	b := svc.Build
	if b == nil {
		return
	}
	for key, cannot := range map[string]bool{
		"isolation": b.Isolation != "" && b.Isolation != "default", "platforms": len(b.Platforms) > 1,
		"provenance": b.Provenance != "" && b.Provenance != "false", "sbom": b.SBOM != "" && b.SBOM != "false",
	} {
		if cannot {
			c.refuse(of(svc, "build", key), "builds do not support it here")
		}
	}
	for _, ref := range b.Secrets {
		if c.as.Secrets[ref.Source].External {
			c.refuse(of(svc, "build", "secrets"), "%s is external: give its file, content or variable", ref.Source)
		}
	}
}

// MountedImages returns the references of the images that services mount, by service.
func (p *Project) MountedImages() map[string][]string {
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

func (p *Project) source(svc types.ServiceConfig) image.Source {
	s := image.Source{Service: svc.Name, Project: p.folder(), Image: svc.Image, Platform: svc.Platform}
	policy, age, _ := svc.GetPullPolicy() // checked at load
	local, _ := p.flag(svc.Name, "x-local")
	switch {
	case local || policy == types.PullPolicyNever:
		s.Pull = image.PullNever
	case policy == types.PullPolicyAlways || policy == types.PullPolicyRefresh:
		s.Pull, s.Age = image.PullAlways, age
	default:
		s.Pull = image.PullMissing
	}
	if svc.Build != nil {
		s.Build = p.build(svc)
		if s.Platform == "" && len(svc.Build.Platforms) == 1 {
			s.Platform = svc.Build.Platforms[0]
		}
	}
	return s
}

func (p *Project) build(svc types.ServiceConfig) *image.Build {
	b := svc.Build
	context := b.Context
	if p.withoutContext(&svc) {
		context = ""
	}
	build := &image.Build{
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
			build.Ulimits = append(build.Ulimits, image.Ulimit{Name: name, Soft: int64(u.Single), Hard: int64(u.Single)})
			continue
		}
		build.Ulimits = append(build.Ulimits, image.Ulimit{Name: name, Soft: int64(u.Soft), Hard: int64(u.Hard)})
	}
	for _, ref := range b.Secrets {
		source := p.as.Secrets[ref.Source]
		secret := image.Secret{ID: ref.Source, File: source.File, Content: source.Content}
		if ref.Target != "" {
			secret.ID = ref.Target
		}
		if source.Environment != "" {
			secret.Content = p.as.Environment[source.Environment]
		}
		build.Secrets = append(build.Secrets, secret)
	}
	return build
}
