from tests.acceptance.nat import nat_lab

__all__ = ["nat_lab"]
