"""Certificates and keys: authorities, identities signed by them, signing key pairs.

ECDSA P-256 throughout: small, fast to make (a cluster has dozens), accepted by every TLS stack. Works on
PEM bytes and knows neither files nor who needs which identity (`podyard.cluster.identities`).
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_VALID_DAYS = 3650
IDENTITY_VALID_DAYS = 365
# A certificate this close to its end is made anew by whoever looks after it.
RENEWAL_DAYS = 30
# Another machine's clock may be a little behind.
_BACKDATE = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A bare key pair, both PEM, such as the one that signs service-account tokens."""

    private: bytes = field(repr=False)
    public: bytes


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a certificate speaks for.

    `common_name` is the user and `organizations` its groups; `dns_names` and `addresses` are what a server is
    reached by. A certificate with neither is for clients alone.
    """

    common_name: str
    organizations: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    client: bool = True

    @property
    def server(self) -> bool:
        """True when it has a name or address to be reached by."""
        return bool(self.dns_names or self.addresses)


def new_authority(common_name: str, *, now_s: float) -> KeyPair:
    """A self-signed authority that may sign identities but no further authorities.

    Args:
        common_name: shown in tools; clients trust the key, not the name.
        now_s: real time, seconds since the epoch.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    builder = _builder(name, name, key.public_key(), now_s, AUTHORITY_VALID_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs=True), critical=True)
    builder = builder.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue(authority: KeyPair, identity: Identity, *, now_s: float) -> KeyPair:
    """A key and a certificate for `identity`, signed by `authority`; `now_s` is real time."""
    key = ec.generate_private_key(ec.SECP256R1())
    signer = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in identity.organizations]
    attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, identity.common_name))
    builder = _builder(x509.Name(attributes), issuer.subject, key.public_key(), now_s, IDENTITY_VALID_DAYS)
    usages = []
    if identity.server:
        usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
    if identity.client:
        usages.append(ExtendedKeyUsageOID.CLIENT_AUTH)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
    )
    if identity.server:
        names: list[x509.GeneralName] = [x509.DNSName(name) for name in identity.dns_names]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in identity.addresses]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return _pair(builder.sign(signer, hashes.SHA256()), key)


def new_signing_key() -> SigningKey:
    """A key pair without a certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return SigningKey(_private_pem(key), public)


def certificates_of(pem: bytes) -> list[str]:
    """Each certificate of a PEM file alone, in order; whatever else the file holds is left out.

    Raises:
        ValueError: there is none, or one that cannot be read.
    """
    return [
        certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")
        for certificate in x509.load_pem_x509_certificates(pem)
    ]


def serves(pair: KeyPair, authority: KeyPair, identity: Identity, *, now_s: float) -> bool:
    """True while the pair is `authority`'s word for exactly this identity and not due for renewal.

    Unreadable PEM answers False: it is made anew.
    """
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = serialization.load_pem_private_key(pair.key, None)
        issuer = x509.load_pem_x509_certificate(authority.certificate)
        certificate.verify_directly_issued_by(issuer)
    except Exception:
        # cryptography raises many types for malformed input; each of them means the same here.
        return False
    ends = certificate.not_valid_after_utc
    if ends - timedelta(days=RENEWAL_DAYS) <= datetime.fromtimestamp(now_s, UTC):
        return False
    return key.public_key() == certificate.public_key() and _read(certificate) == (
        identity.common_name,
        identity.organizations,
        frozenset(identity.dns_names),
        frozenset(identity.addresses),
    )


def _read(certificate: x509.Certificate) -> tuple[str, tuple[str, ...], frozenset[str], frozenset[str]]:
    def values(oid: x509.ObjectIdentifier) -> tuple[str, ...]:
        return tuple(str(attribute.value) for attribute in certificate.subject.get_attributes_for_oid(oid))

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        dns_names, addresses = frozenset[str](), frozenset[str]()
    else:
        dns_names = frozenset(names.get_values_for_type(x509.DNSName))
        addresses = frozenset(str(address) for address in names.get_values_for_type(x509.IPAddress))
    common_names = values(NameOID.COMMON_NAME)
    return common_names[0] if common_names else "", values(NameOID.ORGANIZATION_NAME), dns_names, addresses


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now_s: float, days: int
) -> x509.CertificateBuilder:
    now = datetime.fromtimestamp(now_s, UTC).replace(microsecond=0)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), _private_pem(key))
